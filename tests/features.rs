//! Features as a user meets them: listed, read, proved as far as this machine can, and refused in clear words

mod program;

use program::{Told, run, warpsmith};
use std::fs;

#[test]
fn the_features_of_an_architecture_are_listed_with_counter_and_state_for_people_and_for_scripts() {
    let listed = run(&["features", "list", "--arch", "sm_90"]).ended(0).out;
    assert_eq!(listed.lines().count(), 11, "{listed}");
    assert!(listed.contains("wgmma        measured     sm__inst_executed_pipe_tensor_op_gmma.sum"), "{listed}");
    let all: serde_json::Value = serde_json::from_str(&run(&["features", "list", "--json"]).ended(0).out).unwrap();
    assert!(all.as_array().unwrap().iter().any(|cell| cell["cell"] == "roles" && cell["paper"] == 823.28));
}

#[test]
fn a_feature_is_shown_with_its_evidence_and_its_guide_and_its_kernel_compiles_as_it_is_printed() {
    let shown = run(&["features", "show", "wgmma"]).ended(0).out;
    for part in ["target sm__inst_executed_pipe_tensor_op_gmma.sum: 0 -> 262144", "NVIDIA H200", "## Protocol"] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    assert!(run(&["features", "show", "5", "--kernel"]).ended(0).out.contains("extern \"C\" void"));
}

#[test]
fn what_is_unknown_or_wrong_is_said_with_what_there_is() {
    let said = |arguments: &[&str]| run(arguments).ended(2).err;
    assert!(said(&["features", "verify", "--arch", "hoper"]).contains("there is no architecture \"hoper\""));
    assert!(said(&["features", "show", "wgma"]).contains("it has wgmma, fp8"));
    let folder = tempfile::tempdir().unwrap();
    let own = |file: &str, text: &str| {
        let path = folder.path().join("features").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        warpsmith(&["features", "list"]).current_dir(folder.path()).output().map(Told::of).unwrap()
    };
    assert!(
        own("notes.md", "Something else.").ended(0).out.contains("wgmma"),
        "a folder of this name may be another's"
    );
    let said = own("mine/column.toml", "schema = 1\ntitle = 'Mine'\narchs = ['sm_121']\n").ended(0).out;
    assert!(said.contains("mine: Mine (sm_121a)"), "{said}");
    let said = own("mine/01_mma/guide.md", "").ended(2).err;
    assert!(said.contains("features/mine/01_mma/config.toml: this file is missing"), "{said}");
}

#[cfg_attr(any(has_gpu, not(has_nvcc)), ignore = "needs nvcc, and no GPU")]
#[test]
fn without_a_gpu_it_is_said_what_compiles_and_that_nothing_was_measured() {
    let out = tempfile::tempdir().unwrap();
    let told =
        run(&["features", "verify", "--arch", "hopper", "--cell", "vector", "-o", &out.path().display().to_string()]);
    let told = told.ended(3);
    assert!(told.out.contains("there is no GPU here") && told.out.contains("nothing is measured"), "{told:?}");
    assert!(told.out.contains("vector      compiles; "), "{told:?}");
    assert!(out.path().join("hopper/04_vector/task.toml").is_file());
}

#[cfg_attr(has_gpu, ignore = "needs a machine without a GPU")]
#[test]
fn without_a_gpu_and_without_nvcc_one_sentence_says_so() {
    let out = tempfile::tempdir().unwrap();
    let out = out.path().display().to_string();
    let mut command = warpsmith(&["features", "verify", "--arch", "hopper", "-o", &out]);
    for name in ["NVCC", "CUDA_HOME", "CUDA_PATH"] {
        command.env_remove(name);
    }
    let told = command.env("PATH", "/nowhere").output().map(Told::of).unwrap();
    if !std::path::Path::new("/usr/local/cuda/bin/nvcc").is_file() {
        let said = told.ended(3).err;
        assert!(said.contains("there is no GPU here") && said.contains("there is no nvcc"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
