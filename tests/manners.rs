//! Does the program behave as one of the command line: completions, man pages, colours, examples, a task from a source?

use crate::program::{Told, place, run, warpsmith};
use std::{fs, path::Path};

#[test]
fn a_shell_is_told_of_every_command_and_man_has_a_page_for_each() {
    let bash = run(&["completions", "bash"]).ended(0).out;
    let folder = tempfile::tempdir().unwrap();
    run(&["man", &folder.path().display().to_string()]).ended(0);
    for command in ["run", "batch", "evaluate", "metrics", "init"] {
        assert!(bash.contains(&format!("warpsmith,{command})")), "{command}");
        assert!(folder.path().join(format!("warpsmith-{command}.1")).is_file(), "{command}");
    }
    let page = fs::read_to_string(folder.path().join("warpsmith-metrics-sample.1")).unwrap();
    assert!(page.contains(".SH OPTIONS") && page.contains("kernels"), "{page}");
}

#[test]
fn without_a_task_those_that_are_here_are_listed_recorded_ones_first() {
    let said = run(&["run"]).ended(2).err;
    let place = |name: &str| said.find(name).unwrap_or_else(|| panic!("{name} is not in {said}"));
    assert!(place("* examples/silu_and_mul ") < place("  examples/cuda/silu_and_mul_bf16"));
    assert!(said.contains("warpsmith run examples/") && !said.contains("target/"), "{said}");
    let empty = tempfile::tempdir().unwrap();
    let said = warpsmith(&["run"]).current_dir(empty.path()).output().map(Told::of).unwrap().ended(2).err;
    assert!(said.contains("there is none in this folder") && said.contains("warpsmith init"), "{said}");
}

#[test]
fn colour_comes_when_it_is_asked_for_and_goes_when_it_is_not_wanted() {
    let escaped = |arguments: &[&str], no_color: &str| {
        let told = warpsmith(arguments).env("NO_COLOR", no_color).output().map(Told::of).unwrap().ended(2);
        told.err.contains('\u{1b}')
    };
    assert!(escaped(&["--color", "always", "unheard-of"], ""));
    assert!(escaped(&["unheard-of", "--color=always"], "1"), "the flag goes before the variable");
    assert!(!escaped(&["--color", "never", "unheard-of"], ""));
    assert!(!escaped(&["unheard-of"], "1"));
}

#[test]
fn a_function_becomes_a_task_that_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("scale.cpp");
    let text = "#include <cstdint>\nextern \"C\" void scale(const float* x, float* out, float factor, int64_t n) {\n\
                \x20 for (int64_t i = 0; i < n; ++i) out[i] = factor * x[i];\n}\n";
    fs::write(&source, text).unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let told = run(&["init", &at("scale.cpp"), "-o", &at("scale")]).ended(0).out;
    assert!(told.contains("warpsmith evaluate") && told.contains("marked LOOK"), "{told}");
    let evaluate = ["evaluate", &at("scale"), &at("scale/reference.cpp"), "--repetitions", "5", "--json"];
    let found: serde_json::Value = serde_json::from_str(&run(&evaluate).ended(0).out).unwrap();
    assert!(found["evaluation"]["passed"].is_object(), "{found}");
    let again = run(&["init", &at("scale.cpp"), "-o", &at("scale")]).ended(2).err;
    assert!(again.contains("task.toml") && again.contains("--out names another place"), "{again}");
}

#[test]
fn a_kernel_in_cuda_becomes_a_task_that_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernelbench/families/transpose/reference.cu");
    let out = folder.path().join("task").display().to_string();
    run(&["init", &cuda.display().to_string(), "-o", &out]).ended(0);
    let task = kernelbench::load::task(Path::new(&out)).unwrap();
    assert!(task.is_cuda() && task.cases.len() == 1 && task.final_cases.len() == 1);
}

#[test]
fn a_module_becomes_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("gate.py");
    let text = "import torch\nfrom torch import nn\n\nclass Gate(nn.Module):\n    def forward(self, x, y):\n        \
                return torch.sigmoid(x) * y\n";
    fs::write(&source, text).unwrap();
    let out = folder.path().join("problem.py").display().to_string();
    run(&["init", &source.display().to_string(), "--out", &out]).ended(0);
    assert!(kernelbench::load::task(Path::new(&out)).unwrap().problem().is_some());
}

#[test]
fn a_source_that_makes_no_task_is_told_what_was_expected() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("f.cpp");
    for (text, why) in [("int main() {}", "C linkage"), ("extern \"C\" void f(const float* x, long n) {}", "not const")]
    {
        fs::write(&source, text).unwrap();
        let said = run(&["init", &source.display().to_string()]).ended(2).err;
        assert!(said.contains("f.cpp") && said.contains(why), "{said}");
    }
}

#[test]
fn a_recorded_run_is_drawn_with_its_rounds_and_the_judges_words() {
    let folder = tempfile::tempdir().unwrap();
    let picture = folder.path().join("run.svg").display().to_string();
    run(&["report", "examples/silu_and_mul/recorded", "--picture", &picture]).ended(0);
    let drawn = fs::read_to_string(&picture).unwrap();
    assert_eq!(drawn.matches("<circle").count(), 8, "a mark for each of eight rounds that passed");
    assert!(drawn.contains("prefers-color-scheme: dark") && drawn.contains(">certified<"));
    assert!(drawn.contains("Software-prefetch both input streams"), "{drawn}");
    let kept = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/run.svg")).unwrap();
    assert!(drawn == kept, "docs/run.svg is this picture: `just picture` brings it up to date");
}

#[test]
fn a_function_in_c_becomes_a_task() {
    let (folder, _) = place();
    let at = |name: &str| folder.path().join(name).display().to_string();
    let text = "#include <stdint.h>\nvoid add(const double *restrict x, double *y, int64_t n) {\n\
                    for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;\n}\n";
    fs::write(at("add.c"), text).unwrap();
    run(&["init", &at("add.c"), "-o", &at("add")]).ended(0);
    let told = run(&["evaluate", &at("add"), &at("add/reference.c"), "--repetitions", "2", "--warmup", "1"]).ended(0);
    assert!(told.out.contains("correct"), "{told:?}");
}
