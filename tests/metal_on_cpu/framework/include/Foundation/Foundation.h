// As much of Foundation as the library's Metal host uses. Names and signatures are those that Apple documents.
#pragma once

#include <Foundation/NSObject.h>
#include <Foundation/NSValues.h>
#include <dispatch/dispatch.h>
