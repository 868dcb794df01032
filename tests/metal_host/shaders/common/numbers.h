#pragma once
#define SEVEN 7
