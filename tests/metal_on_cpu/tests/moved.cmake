# cmake -DPAGE=FOLDER -P moved.cmake: the page's installed folder works at another place, without the sources and the build.
set(moved ${PAGE}/moved)
set(shaders ${PAGE}/shaders)
file(REMOVE_RECURSE ${moved} ${shaders})
file(COPY ${PAGE}/top/scale.metal ${PAGE}/top/race.metal DESTINATION ${shaders})
# The access outside the buffer is in a function of the prelude, and the finding must name the shader's line.
file(WRITE ${shaders}/far.metal "kernel void far(device packed_float3* y [[buffer(0)]]) {\n  y[1] += packed_float3(1, 2, 3);\n}\n")
set(far far.metal far --grid 1 --group 1 --buffer 12 --check)

# says(PREFIX EXPECTED WORD...): what the msl-run in this folder prints with these words.
function(says prefix expected)
  execute_process(COMMAND ${prefix}/msl-run ${ARGN} WORKING_DIRECTORY ${shaders} OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "${prefix}/msl-run ${ARGN}\nexpected ${expected}\nfound ${said}")
  endif()
endfunction()

# The first copy makes an image, which the moved one finds in the cache.
set(ENV{METAL_ON_CPU_CACHE} ${PAGE}/images)
file(REMOVE_RECURSE ${PAGE}/images)
says(${PAGE}/top/build/shaders "^far.metal:2: out-of-bounds-read: " ${far})
file(RENAME ${PAGE}/top/installed ${moved})
file(REMOVE_RECURSE ${PAGE}/top)
says(${moved}/bin "^far.metal:2: out-of-bounds-read: " ${far})

set(scale scale.metal scale --grid 4 --group 4 --buffer float:1,2,3,4 --buffer "float:zeros(4)" --buffer float:2.5 --check)
set(race race.metal add_first --grid 4 --group 4 --buffer int:10,20,30,40 --buffer "int:zeros(4)" --check)
says(${moved}/bin "^race.metal:8: threadgroup-race: " ${race})
says(${moved}/bin "buffer 1 float: 2.5 5 7.5 10\n" ${scale})
