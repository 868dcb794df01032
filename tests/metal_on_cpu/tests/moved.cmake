# cmake -DPAGE=FOLDER -P moved.cmake: the page's installed folder works at another place, without the sources and the build. The
# cache has the images that the page's copy made, so their places must be understood, too.
set(moved ${PAGE}/moved)
set(shaders ${PAGE}/shaders)
file(REMOVE_RECURSE ${moved} ${shaders})
file(COPY ${PAGE}/top/scale.metal ${PAGE}/top/race.metal DESTINATION ${shaders})
file(RENAME ${PAGE}/top/installed ${moved})
file(REMOVE_RECURSE ${PAGE}/top)

# says(EXPECTED WORD...): what the moved msl-run prints with these words.
function(says expected)
  execute_process(COMMAND ${moved}/bin/msl-run ${ARGN} WORKING_DIRECTORY ${shaders} OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "msl-run ${ARGN}\nexpected ${expected}\nfound ${said}")
  endif()
endfunction()
set(scale scale.metal scale --grid 4 --group 4 --buffer float:1,2,3,4 --buffer "float:zeros(4)" --buffer float:2.5 --check)
set(race race.metal add_first --grid 4 --group 4 --buffer int:10,20,30,40 --buffer "int:zeros(4)" --check)
says("^race.metal:8: threadgroup-race: " ${race})
says("buffer 1 float: 2.5 5 7.5 10\n" ${scale})
# A cache of its own: everything is compiled again.
set(ENV{METAL_ON_CPU_CACHE} ${PAGE}/images)
file(REMOVE_RECURSE ${PAGE}/images)
says("^race.metal:8: threadgroup-race: " ${race})
says("buffer 1 float: 2.5 5 7.5 10\n" ${scale})
