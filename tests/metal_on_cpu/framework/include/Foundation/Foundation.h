// As much of Foundation as hosts of Metal use.
#pragma once

#include <Foundation/NSCollections.h>
#include <Foundation/NSObject.h>
#include <Foundation/NSString.h>
#include <Foundation/NSValues.h>
#include <dispatch/dispatch.h>
