#pragma once
// The prelude already has the functions of bfloat that the header of this name in the wheel adds.
