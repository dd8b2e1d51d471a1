# Real code for every supported GPU, and PTX for the ones in between and to come. The list of a
# user or of a parent project (CMAKE_CUDA_ARCHITECTURES, CUDAARCHS) is taken as it is.
# Named here because CMake's own default is compute capability 7.5 alone.
if(NOT CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  set(CMAKE_CUDA_ARCHITECTURES
    80-real 86-real 89-real 90-real 100-real 103-real 120-real 80-virtual 120-virtual)
  if(ddtree_nvcc_version VERSION_LESS 12.9)
    list(REMOVE_ITEM CMAKE_CUDA_ARCHITECTURES 103-real)
  endif()
endif()
