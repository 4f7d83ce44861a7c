// All schedules of elementwise programs.
#pragma once
#include "broadcast.cuh"
#include "columns.cuh"
#include "columns_unaligned.cuh"
#include "groups.cuh"
#include "row_shares.cuh"
#include "strided.cuh"
#include "tabulate.cuh"
#include "tile.cuh"
#include "vec.cuh"
