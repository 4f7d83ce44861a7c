// All schedules of elementwise programs.
#pragma once
#include "vec.cuh"
