//! Does a certified kernel go back into SGLang as it says, in each of its forms, and does whoever asks for the impossible hear why?
//!
//! SGLang is a stand-in of ours with its structure, under `tests/putback`. Asked for, where `WARPSMITH_SGLANG` names a folder in which
//! the real sglang is installed, the plug-in is tried on that too.

#[path = "putback/chosen.rs"]
mod chosen;
#[path = "putback/lacking.rs"]
mod lacking;
#[path = "putback/repository.rs"]
mod repository;

use crate::program::{self, Told, place, run};
use serde_json::Value;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const ORIGINAL: &str = include_str!("putback/activation.cuh");
const TASK: &str = include_str!("putback/task.toml");
/// One that is compiled ahead of time.
const AHEAD: &str = include_str!("putback/merge.toml");
/// Each header that the task came with; the stand-in has the one that is SGLang's own.
const HEADER: &str = include_str!("putback/standin/sglang/kernels/jit/include/sgl_kernel/own.cuh");
/// A chain, and its parts.
const CHAIN: &str = include_str!("putback/chain.toml");
const PARTS: [&str; 2] = ["elementwise/qknorm.cuh", "elementwise/rope.cuh"];
const STANDIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/putback/standin");
/// What the scripted model writes.
const FASTER: &str = "// faster, simulate: us=50";

/// A folder that goes away, with a task that was taken out of the stand-in, and a run of it.
struct Story {
    folder: tempfile::TempDir,
}

impl Story {
    /// A run whose candidate is certified, or not, as the simulation is told.
    fn of(told: &str) -> Self {
        Self::of_task(TASK, told)
    }

    fn of_task(text: &str, told: &str) -> Self {
        let story = Self { folder: tempfile::tempdir().unwrap() };
        let task = story.task("silu_and_mul", text);
        story.runs("run", &task, told);
        story
    }

    /// One run of two operators, of which the framework compiles one at run time and one ahead of time.
    fn of_two() -> Self {
        let story = Self { folder: tempfile::tempdir().unwrap() };
        story.task("tasks/silu_and_mul", TASK);
        story.task("tasks/merge_attn_states", AHEAD);
        story.runs("batch", &story.folder.path().join("tasks"), FASTER);
        story
    }

    /// A task's folder.
    fn task(&self, name: &str, text: &str) -> PathBuf {
        let task = self.folder.path().join(name);
        write(&task.join("activation.cuh"), ORIGINAL);
        let entries = ["silu_and_mul_bf16", "merge_attn_states_fp16", "qknorm_rope_bf16"]
            .map(|entry| format!("extern \"C\" void {entry}() {{}}\n"));
        fs::write(task.join("binding.cu"), entries.concat()).unwrap();
        for header in ["ATen/Tensor.h", "own.h", "sgl_kernel/own.cuh", "tvm/ffi/any.h"] {
            write(&task.join("include").join(header), HEADER);
        }
        for part in PARTS {
            let text = fs::read_to_string(Path::new(STANDIN).join("sglang/kernels/jit/csrc").join(part)).unwrap();
            write(&task.join("include").join(part), &text);
        }
        let sha256 = kernelbench::Hash::of(ORIGINAL.as_bytes());
        write(&task.join("task.toml"), &text.replace("SHA256", sha256.as_str()));
        task
    }

    fn runs(&self, command: &str, tasks: &Path, told: &str) {
        let candidate = ORIGINAL.replace("namespace {\n", &format!("{told}\nnamespace {{\n"));
        let reply = serde_json::json!({ "role": "coder", "reply": format!("Here.\n```cuda\n{candidate}```\n") });
        // One for each task.
        fs::write(self.path("script.jsonl"), format!("{reply}\n").repeat(2)).unwrap();
        let (tasks, run, script) = (tasks.display().to_string(), self.run(), self.path("script.jsonl"));
        let script = format!("scripted:{script}");
        let arguments =
            [command, &tasks, "--model", &script, "--simulate", "--shapes", "task", "--rounds", "1", "--out", &run];
        let told = program::run(&arguments);
        assert!(matches!(told.code, Some(0 | 1)), "{told:?}");
        self.on_a_gpu();
    }

    fn run(&self) -> String {
        self.path("run")
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// The records, as if the machine had been a GPU.
    fn on_a_gpu(&self) {
        let fact = r#""facts":[{"name":"compute capability","value":"9.0"},"#;
        self.change_events(|text| {
            assert!(text.contains("\"facts\":["), "{text}");
            text.replace("\"facts\":[", fact).replace(",]", "]")
        });
    }

    fn change_events(&self, change: impl Fn(&str) -> String) {
        for file in program::files(Path::new(&self.run())).iter().filter(|path| path.ends_with("events.jsonl")) {
            fs::write(file, change(&fs::read_to_string(file).unwrap())).unwrap();
        }
    }

    fn export(&self, form: &str, more: &[&str]) -> (Told, PathBuf) {
        let (out, run) = (self.path("out"), self.run());
        let told = program::run(&[&["sglang", "export", &run, "--as", form, "-o", &out], more].concat());
        (told, PathBuf::from(out))
    }

    /// The stand-in with the plug-in installed beside it.
    fn site(&self, out: &Path) -> PathBuf {
        self.site_of(out, "warpsmith_sglang_silu_and_mul")
    }

    fn site_of(&self, out: &Path, package: &str) -> PathBuf {
        let site = self.folder.path().join("site");
        copy(Path::new(STANDIN), &site);
        copy(&out.join(package), &site.join(package));
        let project: toml::Table = fs::read_to_string(out.join("pyproject.toml")).unwrap().parse().unwrap();
        let entry = project["project"]["entry-points"]["sglang.srt.plugins"][package].as_str().unwrap();
        let about = site.join(format!("{package}-0.1.0.dist-info"));
        fs::create_dir(&about).unwrap();
        fs::write(about.join("METADATA"), format!("Metadata-Version: 2.1\nName: {package}\nVersion: 0.1.0\n")).unwrap();
        fs::write(about.join("entry_points.txt"), format!("[sglang.srt.plugins]\n{package} = {entry}\n")).unwrap();
        site
    }
}

fn write(file: &Path, text: &str) {
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(file, text).unwrap();
}

fn copy(from: &Path, to: &Path) {
    for file in program::files(from) {
        let target = to.join(file.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(&file, target).unwrap();
    }
}

/// A kernel of the plug-in that includes what the framework has beside the original, and where it lies.
fn includes(site: &Path, kernel: &str, headers: &[&str]) -> PathBuf {
    let file = program::files(site).into_iter().find(|path| path.ends_with(kernel)).unwrap();
    let lines: Vec<String> = headers.iter().map(|header| format!("#include \"{header}\"\n")).collect();
    fs::write(&file, lines.concat() + &fs::read_to_string(&file).unwrap()).unwrap();
    file
}

fn python(site: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Told {
    let mut command = Command::new(env!("PYTHON_WITH_TORCH"));
    command.args(arguments).env("PYTHONPATH", site).env("PYTHONDONTWRITEBYTECODE", "1");
    for name in ["WARPSMITH_SGLANG", "WARPSMITH_SGLANG_SHAPES", "WARPSMITH_SGLANG_COUNTERS"] {
        command.env_remove(name);
    }
    command.envs(environment.iter().copied()).output().map(Told::of).unwrap()
}

fn hooked(site: &Path, case: &str, environment: &[(&str, &str)]) {
    scripted("hooked.py", site, case, environment);
}

fn scripted(script: &str, site: &Path, case: &str, environment: &[(&str, &str)]) {
    let script = format!("{}/tests/putback/{script}", env!("CARGO_MANIFEST_DIR"));
    let told = python(site, &[&script, case], environment).ended(0);
    assert!(told.out.contains(&format!("as it says: {case}")), "{told:?}");
}

#[test]
fn a_plug_in_is_found_and_serves_what_was_certified_and_nothing_else() {
    let story = Story::of(FASTER);
    let (told, out) = story.export("plugin", &[]);
    assert!(told.clone().ended(0).out.contains("certified: "), "{told:?}");
    let site = story.site(&out);
    includes(&site, "silu_and_mul_bf16/activation.cuh", &["other.cuh", "elementwise/other.cuh"]);
    hooked(&site, "certified", &[]);
    hooked(&site, "other instance", &[]);
    hooked(&site, "other gpu", &[]);
    hooked(&site, "constraints", &[("WARPSMITH_SGLANG_SHAPES", "constraints")]);
}

#[test]
fn a_plug_in_can_be_switched_off_and_tells_how_often_it_was_used() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let site = story.site(&out);
    hooked(&site, "off", &[("WARPSMITH_SGLANG", "off")]);
    hooked(&site, "off", &[("WARPSMITH_SGLANG", "merge_attn_states")]);
    let kept = story.path("kept");
    let counters = [("WARPSMITH_SGLANG_COUNTERS", kept.as_str())];
    hooked(&site, "certified", &counters);
    hooked(&site, "certified", &[("WARPSMITH_SGLANG", "silu_and_mul,other"), counters[0]]);
    let told = python(&site, &["-m", "warpsmith_sglang_silu_and_mul", "status"], &counters).ended(0);
    for said in
        ["counters of 2 processes", "silu_and_mul bf16: hit 10", "silu_and_mul bf16: axis hidden 2", "switched on here"]
    {
        assert!(told.out.contains(said), "{said}: {told:?}");
    }
}

#[test]
fn what_was_counted_stays_when_the_process_is_killed() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let (site, kept) = (story.site(&out), story.path("kept"));
    let counters = [("WARPSMITH_SGLANG_COUNTERS", kept.as_str())];
    let script = format!("{}/tests/putback/hooked.py", env!("CARGO_MANIFEST_DIR"));
    let told = python(&site, &[&script, "killed"], &counters);
    assert!(told.out.contains("as it says: killed") && told.code.is_none(), "{told:?}");
    let told = python(&site, &["-m", "warpsmith_sglang_silu_and_mul", "status"], &counters).ended(0);
    assert!(told.out.contains("silu_and_mul bf16: hit 1"), "{told:?}");
}

#[test]
fn the_original_stays_where_its_file_is_another_or_the_kernel_does_not_compile() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let site = story.site(&out);
    let kernel =
        program::files(&site).into_iter().find(|path| path.ends_with("silu_and_mul_bf16/activation.cuh")).unwrap();
    fs::write(&kernel, "#error none\n").unwrap();
    hooked(&site, "not built", &[]);
    let installed = site.join("sglang/kernels/jit/csrc/elementwise/activation.cuh");
    fs::write(&installed, format!("{ORIGINAL}// newer\n")).unwrap();
    hooked(&site, "file differs", &[]);
}

#[test]
fn the_original_stays_where_a_header_is_another_than_the_kernel_was_taken_out_with() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let site = story.site(&out);
    let own = site.join("sglang/kernels/jit/include/sgl_kernel/own.cuh");
    // Those of other libraries are compared where their folder is known.
    let ffi = site.join("tvm_ffi/include/tvm/ffi/any.h");
    hooked(&site, "certified", &[]);
    write(&ffi, "// newer\n");
    hooked(&site, "header differs", &[]);
    write(&ffi, HEADER);
    hooked(&site, "certified", &[]);
    fs::write(&own, format!("{HEADER}// newer\n")).unwrap();
    hooked(&site, "header differs", &[]);
    fs::remove_file(&own).unwrap();
    hooked(&site, "header differs", &[]);
}

#[test]
fn a_run_that_was_recorded_without_headers_still_goes_back() {
    let task = TASK.replace("include = \"include\"\n", "");
    let story = Story::of_task(&task, FASTER);
    let (told, out) = story.export("plugin", &[]);
    told.ended(0);
    hooked(&story.site(&out), "certified", &[]);
}

/// A tree of the stand-in, with the file in this layout, under git.
fn tree(story: &Story, root: &str, text: &str) -> PathBuf {
    let tree = story.folder.path().join("tree");
    let file = tree.join(root).join("elementwise/activation.cuh");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, ORIGINAL).unwrap();
    git(&tree, &["init", "-q"]);
    git(&tree, &["add", "."]);
    git(&tree, &["-c", "user.name=n", "-c", "user.email=e", "commit", "-qm", "all"]);
    fs::write(&file, text).unwrap();
    tree
}

fn git(tree: &Path, arguments: &[&str]) -> Told {
    Command::new("git").arg("-C").arg(tree).args(arguments).output().map(Told::of).unwrap()
}

#[test]
fn a_patch_applies_in_every_layout() {
    for (layout, root) in [
        ("kernels", "python/sglang/kernels/jit/csrc"),
        ("jit_kernel", "python/sglang/jit_kernel/csrc"),
        ("site-packages-kernels", "sglang/kernels/jit/csrc"),
    ] {
        let story = Story::of(FASTER);
        let (told, out) = story.export("patch", &[]);
        assert!(told.ended(0).out.contains("a patch has no guard"));
        let patch = out.join(format!("silu_and_mul-bf16-{layout}.patch")).display().to_string();
        let tree = tree(&story, root, ORIGINAL);
        git(&tree, &["apply", "--check", &patch]).ended(0);
        git(&tree, &["apply", &patch]).ended(0);
        let patched = fs::read_to_string(tree.join(root).join("elementwise/activation.cuh")).unwrap();
        assert!(patched.contains(FASTER));
    }
}

#[test]
fn a_tree_that_is_not_the_one_is_named_with_what_to_do() {
    let root = "python/sglang/jit_kernel/csrc";
    let story = Story::of(FASTER);
    let wrong = |tree: &Path, says: &str| {
        let (told, _) = story.export("patch", &["--tree", &tree.display().to_string()]);
        assert!(told.clone().ended(2).err.contains(says), "{told:?}");
    };
    wrong(story.folder.path(), "no tree of sglang, or a version that moved the file");
    let dirty = tree(&story, root, &format!("{ORIGINAL}// changed\n"));
    wrong(&dirty, "it is another text than the one that was taken out: undo changes to it, check out that version");
    git(&dirty, &["checkout", "-q", "."]).ended(0);
    let (told, out) = story.export("patch", &["--tree", &dirty.display().to_string()]);
    told.ended(0);
    assert_eq!(program::files(&out).len(), 1);
}

/// A tree in which git starts programs that leave a trace, as the tree itself says.
fn trapped(tree: &Path, trace: &Path) {
    let leave = format!("touch '{}'", trace.display());
    fs::write(tree.join(".gitattributes"), "* filter=trap\n").unwrap();
    for (name, value) in [
        ("filter.trap.clean", format!("{leave}; cat")),
        ("filter.trap.smudge", format!("{leave}; cat")),
        ("filter.trap.required", "true".to_owned()),
        ("core.fsmonitor", leave),
    ] {
        git(tree, &["config", name, &value]).ended(0);
    }
}

#[test]
fn nothing_that_a_tree_names_is_started_while_a_patch_is_tried_on_it() {
    let root = "python/sglang/jit_kernel/csrc";
    for (text, code) in [(ORIGINAL.to_owned(), 0), (format!("{ORIGINAL}// changed\n"), 2)] {
        let story = Story::of(FASTER);
        let (tree, trace) = (tree(&story, root, &text), story.folder.path().join("trace"));
        trapped(&tree, &trace);
        story.export("patch", &["--tree", &tree.display().to_string()]).0.ended(code);
        assert!(!trace.exists());
        // The trap is one.
        git(&tree, &["status"]);
        assert!(trace.exists());
    }
}

#[test]
fn a_patch_is_not_said_to_apply_to_a_text_that_it_does_not_fit() {
    // The record names the hash of another text than the one that it has.
    let other = ORIGINAL.replace("namespace {", "namespace other {");
    let task = TASK.replace("SHA256", kernelbench::Hash::of(other.as_bytes()).as_str());
    let story = Story::of_task(&task, FASTER);
    let tree = tree(&story, "python/sglang/jit_kernel/csrc", &other);
    let (told, out) = story.export("patch", &["--tree", &tree.display().to_string()]);
    assert!(told.clone().ended(2).err.contains("git says that the patch does not apply"), "{told:?}");
    assert!(!out.exists());
}

#[test]
fn a_run_that_certified_nothing_is_refused_unless_a_candidate_is_named() {
    let story = Story::of("// faster, simulate: us=50 refused");
    let (told, _) = story.export("plugin", &[]);
    assert!(told.clone().ended(2).err.contains("no certified candidate"), "{told:?}");
    let candidate = kernelbench::Hash::of(
        ORIGINAL.replace("namespace {\n", "// faster, simulate: us=50 refused\nnamespace {\n").as_bytes(),
    );
    let named = &candidate.as_str()[..10];
    let (told, out) = story.export("plugin", &["--candidate", named]);
    assert!(told.clone().ended(0).out.contains("NOT CERTIFIED"), "{told:?}");
    let swap = fs::read_to_string(out.join("warpsmith_sglang_silu_and_mul/swap.json")).unwrap();
    let swap: Value = serde_json::from_str(&swap).unwrap();
    assert_eq!(swap["kernels"][0]["certificate"]["certified"], false);
    // The shape of the certificate alone was not looked at.
    assert_eq!(swap["kernels"][0]["axes"]["hidden"]["values"], serde_json::json!([4096]));
    assert!(fs::read_to_string(out.join("README.md")).unwrap().contains("NOT CERTIFIED"));
    let (told, _) = story.export("plugin", &["--candidate", "ffffffffff"]);
    assert!(told.ended(2).err.contains("none of its candidates begins with"));
}

#[test]
fn a_candidate_that_failed_its_checks_or_never_had_any_does_not_go_back() {
    let named = |story: &Story, told: &str| {
        let candidate = ORIGINAL.replace("namespace {\n", &format!("{told}\nnamespace {{\n"));
        let candidate = kernelbench::Hash::of(candidate.as_bytes());
        story.export("plugin", &["--candidate", &candidate.as_str()[..10]])
    };
    for (told, failure) in
        [("wrong", "elements of out are wrong on case 16x4096"), ("build-error", "it does not build")]
    {
        let told = format!("// simulate: {told}");
        let (said, out) = named(&Story::of(&told), &told);
        let said = said.ended(2);
        assert!(said.err.contains("failed when it was evaluated: ") && said.err.contains(failure), "{said:?}");
        assert!(!out.exists());
    }
    let story = Story::of(FASTER);
    story.change_events(|events| {
        let wrote = events.find("\"event\":\"wrote\"").unwrap();
        let end = wrote + events[wrote..].find('\n').unwrap() + 1;
        events[..end].to_owned()
    });
    let (said, _) = named(&story, FASTER);
    assert!(said.clone().ended(2).err.contains("was never evaluated: go on with the run"), "{said:?}");
}

#[test]
fn an_export_says_what_the_gate_said_and_that_nothing_is_known_where_the_record_is_older() {
    let gated = |said: &str| TASK.replace("level = \"J\"\n", &format!("level = \"J\"\ngate = \"{said}\"\n"));
    for (task, verdict, says) in [
        (gated("passed"), Value::from("passed"), "the gate passed"),
        (gated("not-run"), Value::from("not-run"), "WARNING: the gate was not run"),
        (TASK.to_owned(), Value::Null, "nothing is known of the gate"),
    ] {
        let story = Story::of_task(&task, FASTER);
        let (told, out) = story.export("plugin", &[]);
        assert!(told.clone().ended(0).out.contains(&format!("gate       silu_and_mul (bf16): {says}")), "{told:?}");
        let swap = fs::read_to_string(out.join("warpsmith_sglang_silu_and_mul/swap.json")).unwrap();
        let swap: Value = serde_json::from_str(&swap).unwrap();
        assert_eq!(swap["kernels"][0]["gate"]["verdict"], verdict);
        assert!(swap["kernels"][0]["gate"]["summary"].as_str().unwrap().starts_with(says), "{swap}");
        assert!(fs::read_to_string(out.join("README.md")).unwrap().contains(says));
        let told = python(&story.site(&out), &["-m", "warpsmith_sglang_silu_and_mul", "status"], &[]).ended(0);
        assert!(told.out.contains(says), "{told:?}");
        fs::remove_dir_all(&out).unwrap();
        let (told, out) = story.export("flashinfer-bench", &[]);
        assert!(told.ended(0).out.contains(says) && fs::read_to_string(out.join("README.md")).unwrap().contains(says));
        let solutions = program::files(&out.join("solutions"));
        assert!(!solutions.is_empty());
        for solution in solutions {
            let solution: Value = serde_json::from_str(&fs::read_to_string(solution).unwrap()).unwrap();
            assert!(solution["description"].as_str().unwrap().contains(says), "{solution}");
        }
    }
    let (told, _) = Story::of_task(&gated("refused"), FASTER).export("plugin", &[]);
    assert!(told.clone().ended(2).err.contains("the gate refused what was taken out"), "{told:?}");
}

#[test]
fn a_task_that_did_not_come_from_sglang_has_no_place_to_go_back_to() {
    let (_folder, path) = place();
    program::simulated(&path, &[]).ended(0);
    let told = run(&["sglang", "export", &path, "--as", "plugin", "-o", &format!("{path}-out")]).ended(2);
    assert!(told.err.contains("was not taken out of SGLang") && told.err.contains("sglang extract"), "{told:?}");
}

#[test]
fn an_operator_that_is_not_in_the_run_is_told_with_those_that_are() {
    let story = Story::of(FASTER);
    let told = story.export("plugin", &["--op", "qknorm"]).0.ended(2);
    assert!(told.err.contains("--op qknorm: there is no kernel of it; there are of silu_and_mul"), "{told:?}");
    let (told, out) = story.export("plugin", &["--op", "silu_and_mul"]);
    told.ended(0);
    assert!(out.join("warpsmith_sglang_silu_and_mul/swap.json").is_file());
}

/// Which of the two operators an export speaks of, in its files' names or texts or in the terminal.
fn spoken_of(told: &Told, out: &Path) -> Vec<&'static str> {
    let texts = program::files(out).into_iter().map(|path| {
        let text = fs::read_to_string(&path).unwrap();
        format!("{}\n{text}", path.strip_prefix(out).unwrap().display())
    });
    let all = texts.chain([told.out.clone()]).collect::<Vec<_>>().concat();
    ["silu_and_mul", "merge_attn_states"].into_iter().filter(|operator| all.contains(operator)).collect()
}

#[test]
fn of_a_run_with_two_operators_the_one_that_is_named_goes_back_alone() {
    let story = Story::of_two();
    for form in ["plugin", "patch", "flashinfer-bench", "kernels"] {
        for operators in [&["silu_and_mul"][..], &["merge_attn_states"], &["silu_and_mul", "merge_attn_states"]] {
            let named: Vec<&str> = operators.iter().flat_map(|operator| ["--op", operator]).collect();
            // To name both, or none, is to name all.
            for named in if operators.len() == 2 { vec![named, vec![]] } else { vec![named] } {
                let (told, out) = story.export(form, &named);
                let told = told.ended(0);
                assert_eq!(spoken_of(&told, &out), operators, "{form}: {told:?}");
                fs::remove_dir_all(&out).unwrap();
            }
        }
    }
    let (told, out) = story.export("library", &["--op", "merge_attn_states"]);
    assert_eq!(spoken_of(&told.ended(0), &out), ["merge_attn_states"]);
    fs::remove_dir_all(&out).unwrap();
    for named in [&[][..], &["--op", "silu_and_mul"]] {
        let (told, out) = story.export("library", named);
        assert!(told.clone().ended(2).err.contains("silu_and_mul: sglang compiles"), "{told:?}");
        assert!(!out.exists());
    }
}

#[test]
fn an_operator_that_is_compiled_at_run_time_has_no_library() {
    let told = Story::of(FASTER).export("library", &[]).0.ended(2);
    assert!(told.err.contains("at run time") && told.err.contains("--as plugin"), "{told:?}");
}

#[test]
fn a_library_guards_as_the_certificate_says_and_is_built_with_torchs_own_headers() {
    let story = Story::of_task(AHEAD, FASTER);
    let (told, out) = story.export("library", &[]);
    told.ended(0);
    let folder = out.join("warpsmith_sglang_merge_attn_states/sources/merge_attn_states_fp16");
    let text = fs::read_to_string(folder.join("library.cu")).unwrap();
    for said in [
        "#define merge_state_v2 warpsmith_merge_state_v2\n#include \"merge_attn_states.cu\"",
        "TORCH_LIBRARY_IMPL(sgl_kernel, CUDA, m) {\n    m.impl(\"merge_state_v2\", &guarded);",
        "TORCH_LIBRARY(warpsmith_merge_attn_states_fp16, m)",
        "void guarded(at::Tensor v_a, at::Tensor s_a, at::Tensor v_b, at::Tensor s_b, at::Tensor v_merged, at::Tensor s_merged)",
        "if (v_a.scalar_type() != at::ScalarType::Half) return DTYPE;",
        "if (s_a.scalar_type() != at::ScalarType::Float) return DTYPE;",
        "if (!constrained && !(tokens >= 1 && tokens <= 512)) return AXIS_tokens;",
        "if (!constrained && !(one_of(dim, {128, 256}))) return AXIS_dim;",
        "if (!(dim % 8 == 0)) return CONSTRAINT;",
    ] {
        assert!(text.contains(said), "{said}\n{text}");
    }
    assert!(text.find("original = ").unwrap() < text.find("TORCH_LIBRARY_IMPL(").unwrap());
    assert!(folder.join("include/own.h").is_file() && !folder.join("include/ATen").exists());
    let build = fs::read_to_string(out.join("build.py")).unwrap();
    python(&out, &["-c", "import ast, sys; ast.parse(sys.argv[1])", &build], &[]).ended(0);
    let told = story.export("flashinfer-bench", &[]).0;
    assert!(told.clone().ended(2).err.contains("name another"), "{told:?}");
}

#[test]
fn what_goes_to_flashinfer_bench_keeps_its_rules_and_says_what_it_loses() {
    let story = Story::of(FASTER);
    let (told, out) = story.export("flashinfer-bench", &[]);
    assert!(told.ended(0).out.contains("speedup over the PyTorch reference"));
    let files = program::files(&out);
    let of = |folder: &str| {
        let file = files
            .iter()
            .find(|path| path.starts_with(out.join(folder)) && path.display().to_string().contains("hidden4096"))
            .unwrap();
        fs::read_to_string(file).unwrap()
    };
    let definition: Value = serde_json::from_str(&of("definitions")).unwrap();
    assert_eq!(definition["axes"]["hidden"], serde_json::json!({ "type": "const", "value": 4096 }));
    assert_eq!(definition["axes"]["size_2hidden"]["value"], 8192);
    let solution: Value = serde_json::from_str(&of("solutions")).unwrap();
    assert_eq!(solution["definition"], definition["name"]);
    assert!(solution["sources"][1]["content"].as_str().unwrap().contains(FASTER));
    let workload: Value = serde_json::from_str(of("workloads").lines().next().unwrap()).unwrap();
    assert_eq!(workload["workload"]["axes"], serde_json::json!({ "tokens": 16 }));
    let main = solution["sources"][0]["content"].as_str().unwrap();
    let check = python(&out, &["-c", "import ast, sys; ast.parse(sys.argv[1])", main], &[]);
    check.ended(0);
}

#[test]
fn a_validation_without_a_gpu_says_so_and_fails() {
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let (plugin, result) = (out.display().to_string(), story.path("result.json"));
    let told = run(&["sglang", "validate", &plugin, "--no-tests", "--result", &result, "--python", "python3"]);
    assert_eq!(told.code, Some(1), "{told:?}");
    let result: Value = serde_json::from_str(&fs::read_to_string(result).unwrap()).unwrap();
    assert_eq!(result["passed"], false);
    assert_eq!(result["not_done"][0]["what"], "everything");
    let told = run(&["sglang", "validate", &story.run()]).ended(2);
    assert!(told.err.contains("this is no export as plug-in"), "{told:?}");
}

#[test]
#[ignore = "needs WARPSMITH_SGLANG with the folder of site packages that holds sglang"]
fn the_real_sglang_finds_the_plug_in() {
    let sglang = std::env::var_os("WARPSMITH_SGLANG").map(PathBuf::from).unwrap();
    let story = Story::of(FASTER);
    let (_, out) = story.export("plugin", &[]);
    let site = story.site(&out);
    fs::remove_dir_all(site.join("sglang")).unwrap();
    fs::remove_file(site.join("torch.py")).unwrap();
    // What it was installed with comes before what the system has of the same packages.
    let script = "import sys\nsys.path.insert(0, sys.argv[1])\nfrom sglang.srt.plugins import load_plugins\nload_plugins()\n\
                  import sglang.kernels.jit.utils as u\nassert 'warpsmith' in sys.modules['warpsmith_sglang_silu_and_mul'].__name__\n\
                  assert u.load_jit.__wrapped__, 'not hooked'\nprint('hooked')";
    let told = python(&site, &["-c", script, &sglang.display().to_string()], &[]).ended(0);
    assert!(told.out.contains("hooked"), "{told:?}");
}
