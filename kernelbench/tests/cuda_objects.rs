//! What is to be known of the shared objects that kernels in CUDA are built to, on any machine with nvcc.

use metrics::Arch;
use object::{Object, ObjectSymbol, SymbolFlags, elf::STB_GNU_UNIQUE};
use std::path::Path;
use warpsmith_kernelbench::{Candidate, cuda, load};

/// A process may load many of one text: what is unique for a whole process would be the first one's for all.
#[test]
#[cfg_attr(not(has_nvcc), ignore = "needs nvcc")]
fn what_is_static_in_a_template_is_each_objects_own() {
    let cache = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_warpsmith-kernel").into();
    let options = cuda::Options::new(program, vec![], cache.path().to_owned());
    let task = load::task(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cuda/matmul_fp32")).unwrap();
    let text = "template <typename T> int counted() { static int value = 0; return ++value; }\n\
                static __global__ void nothing() {}\n\
                extern \"C\" int matmul(float *, const float *, const float *, int32_t n, cudaStream_t stream) {\n\
                    nothing<<<1, 1, 0, stream>>>();\n    return counted<float>() > n;\n}\n";
    let built = cuda::build_candidate(&options, Arch::Cuda { major: 9, minor: 0 }, &task, &Candidate::new(text));
    let bytes = std::fs::read(built.unwrap().unwrap()).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let is_unique = |flags| matches!(flags, SymbolFlags::Elf { st_info, .. } if st_info >> 4 == STB_GNU_UNIQUE);
    let value = file
        .symbols()
        .find(|symbol| symbol.name().is_ok_and(|name| name.contains("counted") && name.contains("value")));
    assert!(!is_unique(value.unwrap().flags()));
}
