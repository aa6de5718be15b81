//! Is what goes to Hugging Face's `kernels` a repository that it loads, and whose functions are the operators?

use super::*;

/// What the library of Hugging Face asks torch before it chooses a build.
const TORCH_WITH_CUDA: &str = "
__version__ = '2.11.0'
class version: cuda, hip = '13.0', None
class backends: pass
class cuda:
    is_available = staticmethod(lambda: False)
compiled_with_cxx11_abi = lambda: True
";

/// A repository for Hugging Face's `kernels` of a run, and what was said.
fn repository(story: &Story) -> (Told, PathBuf) {
    let (told, out) = story.export("kernels", &[]);
    (told.ended(0), out)
}

#[test]
fn what_goes_to_hugging_faces_kernels_is_a_repository_whose_functions_are_the_operators() {
    let story = Story::of(FASTER);
    let (told, out) = repository(&story);
    assert!(told.out.contains("not run with it on one") && told.out.contains("get_local_kernel"), "{told:?}");
    let build = out.join("build/torch-cuda");
    let metadata: Value = serde_json::from_str(&fs::read_to_string(build.join("metadata.json")).unwrap()).unwrap();
    assert_eq!(metadata["name"], "warpsmith-sglang-silu-and-mul");
    assert_eq!(metadata["backend"], serde_json::json!({ "type": "cuda", "archs": ["9.0"] }));
    assert_eq!(metadata["python-depends"], serde_json::json!(["tvm-ffi"]));
    let texts = program::files(&build).into_iter().map(|path| fs::read_to_string(path).unwrap());
    assert!(texts.into_iter().any(|text| text.contains(FASTER)), "the candidate's text lies there");
    // Its front calls the kernel of the array's type and refuses another's.
    let call = "import importlib.util, sys, types
spec = importlib.util.spec_from_file_location('front', sys.argv[1] + '/__init__.py')
front = importlib.util.module_from_spec(spec)
sys.modules['front'] = front
spec.loader.exec_module(front)
front.silu_and_mul_bf16.kernel = lambda: lambda *passed: print('called', *(getattr(one, 'name', one) for one in passed))
array = lambda name, dtype: types.SimpleNamespace(name=name, dtype=dtype)
front.silu_and_mul(array('input', 'torch.bfloat16'), array('out', 'torch.bfloat16'))
front.silu_and_mul(array('input', 'torch.float16'), array('out', 'torch.float16'))
";
    let told = python(&out, &["-c", call, &build.display().to_string()], &[]).ended(1);
    assert!(told.out.contains("called input out silu"), "{told:?}");
    assert!(told.err.contains("TypeError: expected an array of bfloat16, found torch.float16"), "{told:?}");
    let readme = fs::read_to_string(out.join("README.md")).unwrap();
    assert!(readme.contains("`silu_and_mul(input, out)` in bf16") && readme.contains("tried on hidden"), "{readme}");
}

#[test]
fn what_a_record_says_of_its_machine_does_not_run_where_its_kernel_is_loaded() {
    let story = Story::of(FASTER);
    let log = program::files(Path::new(&story.run())).into_iter().find(|path| path.ends_with("events.jsonl")).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let hostile = r#"\"\"\"\nraise SystemExit(7)\nr\"\"\""#;
    let changed = text.replace("\"simulated machine\"", &format!("\"{hostile}\""));
    assert_ne!(changed, text, "the record names its machine");
    fs::write(&log, changed).unwrap();
    let (_, out) = repository(&story);
    let module = out.join("build/torch-cuda/silu_and_mul_bf16/__init__.py");
    let load = "import runpy, sys\nprint('loaded', 'SystemExit' in runpy.run_path(sys.argv[1])['__doc__'])";
    let told = python(&out, &["-c", load, &module.display().to_string()], &[]).ended(0);
    assert!(told.out.contains("loaded True"), "{told:?}");
}

/// By its own library, with a torch that says it has CUDA.
#[test]
#[cfg_attr(
    not(has_kernels),
    ignore = "needs Hugging Face's kernels: WARPSMITH_KERNELS names the folder of pip install --target"
)]
fn hugging_faces_kernels_loads_what_goes_to_it() {
    let story = Story::of(FASTER);
    let (_, out) = repository(&story);
    let fake = tempfile::tempdir().unwrap();
    fs::write(fake.path().join("torch.py"), TORCH_WITH_CUDA).unwrap();
    fs::write(fake.path().join("tvm_ffi.py"), "__version__ = '0.1.11'").unwrap();
    let load = "import sys
from pathlib import Path
from kernels import get_local_kernel
from kernels.cli import main
kernel = get_local_kernel(Path(sys.argv[1]))
print('loaded', kernel.silu_and_mul.__code__.co_varnames)
sys.argv = ['kernels', 'info', sys.argv[1]]
main()
";
    let folders = [fake.path().display().to_string(), env!("WARPSMITH_KERNELS").to_owned()].join(":");
    let told = python(&out, &["-c", load, &out.display().to_string()], &[("PYTHONPATH", &folders)]);
    let told = told.ended(0);
    assert!(told.out.contains("loaded ('input', 'out')"), "{told:?}");
    assert!(told.out.contains("warpsmith-sglang-silu-and-mul"), "{told:?}");
}
