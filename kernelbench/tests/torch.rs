//! What becomes of candidates for problems in KernelBench's format, honest and not, on the processor.

use crate::python::{self, PLAN, problem, workshop, workshop_with};
use warpsmith_kernelbench::{
    Beyond, Candidate, Failure, Outcome, Precision, ReferenceMode, Source, Suite, Task, TensorLayout, Timed, Variant,
    Workshop, load,
    torch::{Mode, Torch},
};

const RIGHT: &str = r"
import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return torch.log1p(torch.exp(-x.abs())) + x.clamp(min=0)
";

/// Evaluates, and anew where the two clocks disagreed: none of these candidates touches a clock, but a machine may be busy.
fn evaluate(workshop: &Torch, task: &Task, source: &str) -> Outcome<Timed> {
    let again = |outcome: &Outcome<Timed>| matches!(outcome, Ok(Err(Failure::Clocks { .. })));
    let tries = (0..3).map(|_| python::evaluate(workshop, task, source, &PLAN));
    let mut last = None;
    for outcome in tries {
        let stop = !again(&outcome);
        last = Some(outcome);
        if stop {
            break;
        }
    }
    last.unwrap()
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_problem_that_gave_its_memory_back_is_judged_as_before() {
    let (workshop, task) = (workshop(), problem("1_Softplus"));
    let wrong = with_forward("y = nn.functional.softplus(x)\ny[7, 3] += 0.01\nreturn y");
    assert!(evaluate(&workshop, &task, RIGHT).unwrap().is_ok());
    let before = workshop.processes();
    for _ in 0..2 {
        workshop.offload(&task).unwrap();
        assert!(evaluate(&workshop, &task, RIGHT).unwrap().is_ok());
        workshop.offload(&task).unwrap();
        assert!(matches!(evaluate(&workshop, &task, &wrong).unwrap(), Err(Failure::Mismatch { wrong: 1, .. })));
    }
    let stay = before.iter().filter(|id| workshop.processes().contains(id)).count();
    assert!(stay >= 2, "the verifier's process and the reference's are those of before");
}

fn with_forward(body: &str) -> String {
    let body = body.replace('\n', "\n        ");
    format!(
        "import os, sys, time, torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n"
    )
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_right_candidate_passes_and_is_timed() {
    let workshop = workshop();
    let timed = evaluate(&workshop, &problem("1_Softplus"), RIGHT).unwrap().unwrap();
    assert_eq!(timed.cases[0].candidate.samples_ns().len(), PLAN.repetitions as usize);
    let widened = timed.widened_by.unwrap();
    assert!(widened >= 0.0005, "what one pair of processes hides is a part of every interval: {widened}");
    assert!(timed.speedup.interval.high / timed.speedup.interval.low > 1.0005 * 1.0005);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_wrong_candidate_is_shown_where_it_is_wrong() {
    let workshop = workshop();
    let source = with_forward("y = nn.functional.softplus(x)\ny[7, 3] += 0.01\nreturn y");
    match evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap_err() {
        Failure::Mismatch { wrong: 1, worst_at, argument, spread, .. } => {
            assert_eq!((worst_at, argument.as_str()), (7 * 1024 + 3, "output"));
            assert_eq!((spread.index(worst_at), spread.ranges.clone()), (vec![7, 3], vec![[7, 7], [3, 3]]));
            assert!(spread.max_absolute.is_some_and(|error| (error - 0.01).abs() < 1e-5), "{spread:?}");
        }
        other => panic!("{other:?}"),
    }
    let source = with_forward("return torch.full_like(x, float('inf'))");
    let failure = evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap_err();
    assert!(matches!(failure, Failure::Mismatch { wrong: 524_288, .. }), "infinity is near nothing: {failure:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_ends_a_candidate_is_named() {
    let workshop = workshop();
    let named = |source: &str| evaluate(&workshop, &problem("1_Softplus"), source).unwrap().unwrap_err();
    assert!(matches!(named("def broken(:\n"), Failure::Build { .. }));
    assert!(matches!(named("x = 1\n"), Failure::Interface { .. }));
    assert!(matches!(named("import nothing_like_this\n"), Failure::Raised { stage, .. } if stage == "import"));
    let forward = |body| named(&with_forward(body));
    assert!(matches!(forward("return x[0] @ x"), Failure::Raised { stage, .. } if stage == "forward"));
    assert!(matches!(forward("os.kill(os.getpid(), 11)"), Failure::Crash { signal, .. } if signal.contains("SIGSEGV")));
    assert!(matches!(forward("os._exit(0)"), Failure::Exit { status: 0, .. }));
    assert!(matches!(forward("return x.double()"), Failure::Interface { log } if log.contains("element type")));
    assert!(matches!(forward("return x[:1]"), Failure::Interface { log } if log.contains("shape")));
    assert!(matches!(forward("return x, x"), Failure::Interface { log } if log.contains("output[1]")));
    assert!(matches!(forward("torch.empty(1 << 44); return x"), Failure::Memory { .. }));
    assert!(matches!(forward("time.sleep(600)"), Failure::Hang { .. }));
    assert!(matches!(forward("print('x' * (1 << 24)); return x"), Failure::Flood { .. }));
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_that_holds_more_of_the_hosts_memory_than_it_may_is_ended_before_its_deadline() {
    let small = |options: &mut warpsmith_kernelbench::torch::Options| options.memory_mib = 200;
    let workshop = workshop_with(small);
    let source = with_forward("held = torch.ones(1 << 28)\ntime.sleep(600)\nreturn x");
    let failure = evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap_err();
    assert!(matches!(failure, Failure::Memory { limit_mib: 200, .. }), "{failure:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn preparing_a_reference_finds_out_what_its_module_takes_gives_and_computes() {
    let task = problem("2_Matmul");
    let (workshop, suite) = (workshop(), Suite::of_task(&task));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let baseline = runtime.block_on(workshop.prepare(&task, &suite, &PLAN)).unwrap();
    let signature = &baseline.signature;
    let tensors = signature.inputs.iter().chain(&signature.outputs);
    let layouts: Vec<_> = tensors.map(|v| (v.name.as_str(), v.tensor.as_ref().unwrap())).collect();
    let layout =
        |shape: [u64; 2]| TensorLayout { dtype: "float32".into(), shape: shape.into(), stride: vec![shape[1], 1] };
    let expected = [("a", layout([192, 256])), ("b", layout([256, 160])), ("output", layout([192, 160]))];
    assert_eq!(layouts, expected.each_ref().map(|(name, layout)| (*name, layout)));
    // Torch counts operations from its version 2.1 on.
    assert!([None, Some(2 * 192 * 256 * 160)].contains(&signature.flops), "{:?}", signature.flops);
    let shown = task.with_signature(signature);
    assert_eq!(shown.problem().unwrap().signature, *signature);
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn every_problem_of_ours_accepts_itself() {
    let workshop = workshop();
    for path in python::problems() {
        let task = load::task(&path).unwrap();
        let source = task.problem().unwrap().source.replace("Model", "ModelNew");
        let outcome = evaluate(&workshop, &task, &source).unwrap();
        assert!(outcome.is_ok(), "{}: {:?}", path.display(), outcome.unwrap_err());
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_reaches_nothing_outside_its_folder() {
    let workshop = workshop();
    let named = |body: &str| evaluate(&workshop, &problem("1_Softplus"), &with_forward(body)).unwrap().unwrap_err();
    for (kind, body) in [
        ("43, the harness", "open(sys.path[0] + '/compare.py', 'w')"),
        ("44, a file for the next candidate", "open('/dev/shm/warpsmith', 'w')"),
        ("44, the same in a public folder", "open('/tmp/warpsmith', 'w')"),
        ("45, the program's memory", "open(f'/proc/{os.getppid()}/mem', 'rb').read(1)"),
        ("47, the network", "import socket; socket.create_connection(('1.1.1.1', 53), timeout=3)"),
    ] {
        assert!(matches!(named(body), Failure::Raised { error, .. } if error.contains("Error")), "{kind}");
    }
    assert!(matches!(named("x.zero_(); return nn.functional.softplus(x)"), Failure::Mismatch { .. }));
    assert!(matches!(named("y = nn.functional.softplus(x); x.zero_(); return y"), Failure::InputChanged { .. }));
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn an_error_far_above_the_references_own_is_labelled() {
    let workshop = workshop();
    let source = with_forward("return nn.functional.softplus(x) * (1 + 2e-5)");
    let task = problem("1_Softplus");
    evaluate(&workshop, &task, &source).unwrap().unwrap();
    let labels = workshop.labels(&Candidate::new(source).id());
    assert!(labels.iter().any(|label| label.text.starts_with("lower precision")), "{labels:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_was_learned_of_a_candidate_outlives_its_process() {
    let workshop = workshop();
    let source = with_forward("return nn.functional.softplus(x) * (1 + 2e-5)\n");
    evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().unwrap();
    let id = Candidate::new(source).id();
    workshop.release(&id);
    assert!(workshop.labels(&id).iter().any(|label| label.text.starts_with("lower precision")));
    assert!(workshop.remarks(&id).is_some());
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_that_waits_for_its_next_step_has_let_go_of_its_model_and_goes_on_from_there() {
    let workshop = workshop();
    let source = "
import torch, torch.nn as nn, weakref
before = None

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        global before
        assert before is None or before() is None, 'the model of the step before is still there'
        before = weakref.ref(self)

    def forward(self, x):
        return nn.functional.softplus(x)
";
    let timed = evaluate(&workshop, &problem("1_Softplus"), source).unwrap();
    assert!(timed.is_ok(), "{timed:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_that_breaks_out_when_its_model_is_dropped_is_told() {
    let workshop = workshop();
    let source = "
import os, time, torch, torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return nn.functional.softplus(x)

    def __del__(self):
        if os.fork() == 0:
            time.sleep(30)
            os._exit(0)
";
    let failure = evaluate(&workshop, &problem("1_Softplus"), source).unwrap().unwrap_err();
    assert!(matches!(&failure, Failure::Forbidden { what, .. } if what.contains("another process")), "{failure:?}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_may_name_its_threads_as_the_driver_of_a_gpu_does() {
    let workshop = workshop();
    let source = with_forward(
        "import threading\nevent = threading.Event()\nthread = threading.Thread(target=event.wait)\nthread.start()\n\
         open(f'/proc/self/task/{thread.native_id}/comm', 'w').write('named')\nevent.set()\nthread.join()\n\
         return nn.functional.softplus(x)",
    );
    assert!(evaluate(&workshop, &problem("1_Softplus"), &source).unwrap().is_ok());
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn what_differs_only_beyond_what_a_problem_draws_is_shown_and_a_failure_where_that_is_asked_for() {
    let workshop = workshop();
    let task = problem("7_ReLU");
    let mut strict = task.clone();
    if let Source::Problem(problem) = &mut strict.source {
        problem.beyond = Beyond::Failure;
    }
    for (body, said) in [
        ("return x.abs()", "elements of output are wrong"),
        ("assert x.min() >= 0\nreturn x.abs()", "AssertionError"),
        ("os.kill(os.getpid(), 11 if x.min() < 0 else 0)\nreturn x.abs()", "SIGSEGV"),
    ] {
        let source = with_forward(body);
        let outcome = evaluate(&workshop, &task, &source).unwrap();
        let labels = workshop.labels(&Candidate::new(&source).id());
        let shown = labels.iter().any(|label| label.text.starts_with("beyond what") && label.text.contains(said));
        assert!(outcome.is_ok() && shown, "{body}: {outcome:?} {labels:?}");
        let failed = evaluate(&workshop, &strict, &source).unwrap().unwrap_err().to_string();
        assert!(failed.contains(said), "asked for as a failure: {failed}");
    }
    assert!(evaluate(&workshop, &strict, &with_forward("return torch.relu(x)")).unwrap().is_ok());
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn tensors_may_be_among_a_constructors_arguments() {
    let workshop = workshop();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("scaled.py");
    let text = "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self, scale):\n        \
                super().__init__()\n        self.scale = nn.Parameter(scale)\n\n    def forward(self, x):\n        \
                return x * self.scale\n\ndef get_inputs():\n    return [torch.rand(64, 64)]\n\n\
                def get_init_inputs():\n    return [torch.arange(64.0)]\n";
    std::fs::write(&path, text).unwrap();
    let task = load::task(&path).unwrap();
    evaluate(&workshop, &task, &text.replace("Model", "ModelNew")).unwrap().unwrap();
    let other = text.replace("Model", "ModelNew").replace("nn.Parameter(scale)", "nn.Parameter(scale + 1)");
    assert!(matches!(evaluate(&workshop, &task, &other).unwrap(), Err(Failure::Mismatch { .. })));
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_compiled_reference_is_timed_once_on_a_machine_or_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().to_owned();
    let workshop = workshop_with(|options| {
        (options.baselines, options.cache) = (vec![Mode::Default], Some(cache.clone()));
    });
    let task = problem("1_Softplus");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let prepare =
        || runtime.block_on(workshop.prepare(&task, &Suite::of_task(&task), &PLAN)).unwrap().variants.remove(0);
    let (first, second) = (prepare(), prepare());
    assert_eq!(first.timing.is_some(), first.note.is_empty(), "{first:?}");
    let ratio = |variant: &Variant| variant.speedup.map_or(0.0, |speedup| speedup.ratio);
    assert!((ratio(&first) - ratio(&second)).abs() < 1e-9, "measured again: {first:?} {second:?}");
    assert_eq!(cache.join("baselines").read_dir().unwrap().count(), usize::from(first.timing.is_some()));
}

fn profile(workshop: &Torch, task: &Task, source: &str) -> metrics::Profile {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let suite = Suite::of_task(task);
    runtime.block_on(async {
        let built = workshop.build(task, &Candidate::new(source)).await.unwrap().unwrap();
        let verified = workshop.check(task, built, &suite).await.unwrap().unwrap();
        workshop.time(task, &verified, &suite, &PLAN, 0.0).await.unwrap().unwrap();
        workshop.profile(task, &verified, &suite).await.unwrap()
    })
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_profile_says_which_operators_the_time_goes_to_and_why_it_says_no_more() {
    let workshop = workshop();
    let profile = profile(&workshop, &problem("1_Softplus"), RIGHT);
    assert_eq!(profile.rung, metrics::Rung::TorchProfiler, "{:?}", profile.notes);
    let share: f64 = profile.kernels.iter().filter_map(|kernel| kernel.share).sum();
    assert!((0.5..=1.0).contains(&share), "{:?}", profile.kernels);
    assert!(profile.kernels.iter().all(|kernel| kernel.name.starts_with("aten::")), "{:?}", profile.kernels);
    assert!(profile.notes[0].contains("Nsight Compute looks at GPUs alone"), "{:?}", profile.notes);
    assert!(profile.readings.iter().any(|reading| reading.name == "time" && reading.value.is_some()));
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_candidate_takes_a_process_that_is_ready_and_nothing_outlives_the_workshop() {
    let workshop = workshop_with(|options| options.spares = 2);
    evaluate(&workshop, &problem("1_Softplus"), RIGHT).unwrap().unwrap();
    let ours = workshop.processes();
    assert!(ours.len() >= 4, "a judge, a reference, a candidate, and what is ready or starts: {ours:?}");
    drop(workshop);
    let there = |id: &i32| std::path::Path::new(&format!("/proc/{id}")).exists();
    assert_eq!(ours.into_iter().find(there), None);
}

/// What a candidate that raises this says.
fn said(workshop: &Torch, words: &str) -> String {
    let body = format!("raise RuntimeError({words})");
    match evaluate(workshop, &problem("1_Softplus"), &with_forward(&body)).unwrap().unwrap_err() {
        Failure::Raised { error, .. } => error.trim_start_matches("RuntimeError: ").to_owned(),
        other => panic!("{other}"),
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn torch_is_imported_once_and_its_process_forked_for_each_side_and_confined_there() {
    let workshop = workshop();
    let about =
        "(os.getpid(), os.getsid(0), os.getppid(), open('/proc/self/cmdline').read().split(chr(0))[3].split('/')[-1])";
    let [first, second] = [said(&workshop, about), said(&workshop, about)];
    let ours = std::process::id();
    for said in [&first, &second] {
        let id = said.trim_start_matches('(').split(',').next().unwrap();
        assert_eq!(*said, format!("({id}, {id}, {ours}, 'zygote.py')"), "our own child, in a session of its own");
    }
    assert_ne!(first, second);
    let sockets = "sum('/socket:' in os.path.realpath(f'/proc/self/fd/{fd}') for fd in range(100))";
    assert_eq!(said(&workshop, sockets), "1", "its own line, and not the one to the process that was forked");
    let status = "[line.split()[1] for line in open('/proc/self/status') if line.startswith(('NoNewPrivs', 'CapEff', 'CapBnd'))]";
    let none = "0".repeat(16);
    assert_eq!(said(&workshop, status), format!("['{none}', '{none}', '1']"));
    let limits = "[__import__('resource').getrlimit(which)[1] for which in (4, 7)]";
    assert_eq!(said(&workshop, limits), "[0, 4096]", "no core, and so many open files");
    let own = "os.stat('/proc/self/maps').st_uid == os.getuid()";
    assert_eq!(said(&workshop, own), "True", "it may look at itself, as a GPU's driver does");
    // Where there is no numpy, nothing of it is shared.
    let drawn = "getattr(sys.modules.get('numpy'), 'random', __import__('random')).random()";
    assert_ne!(said(&workshop, drawn), said(&workshop, drawn), "one could foretell what another draws");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_forked_process_that_is_lost_is_replaced_by_another() {
    let workshop = workshop();
    let lives = |id: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.contains("(zygote.py) ") && !stat.contains("(zygote.py) Z")
    };
    let mut lost = vec![];
    for at in 0..10 {
        if let Some(zygote) = workshop.processes().into_iter().find(lives) {
            std::process::Command::new("kill").args(["-9", &zygote.to_string()]).status().unwrap();
            lost.push(zygote);
        }
        evaluate(&workshop, &problem("1_Softplus"), &format!("{RIGHT}# {at}")).unwrap().unwrap();
    }
    assert_eq!(lost.len(), 3, "{lost:?}");
    assert!(said(&workshop, "open('/proc/self/cmdline').read()").contains("candidate.py"), "it is given up in the end");
}

/// A problem written for a test, with this forward of `x` and a second input.
fn with_second_input(folder: &std::path::Path, second: &str, forward: &str) -> Task {
    let text = format!(
        "import torch\nimport torch.nn as nn\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n\n    \
         def forward(self, x, second):\n        return {forward}\n\ndef get_inputs():\n    return [torch.rand(64, 32), \
         {second}]\n\ndef get_init_inputs():\n    return []\n"
    );
    let file = folder.join("1_Second.py");
    std::fs::write(&file, text).unwrap();
    load::task(&file).unwrap()
}

fn ieee(mut task: Task) -> Task {
    let Source::Problem(problem) = &mut task.source else { panic!("a problem") };
    problem.reference = ReferenceMode::Ieee;
    task
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_mask_comes_as_kernelbench_hands_it_over_unless_the_task_says_otherwise() {
    let (folder, workshop) = (tempfile::tempdir().unwrap(), workshop());
    let task = with_second_input(folder.path(), "torch.rand(64, 32) > 0.5", "x * second");
    let needs = |dtype: &str| {
        format!(
            "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x, second):\n        \
             assert second.dtype == torch.{dtype}, second.dtype\n        return x * second\n"
        )
    };
    assert!(evaluate(&workshop, &task, &needs("float32")).unwrap().is_ok());
    assert!(evaluate(&workshop, &ieee(task.clone()), &needs("bool")).unwrap().is_ok());
    let failure = evaluate(&workshop, &task, &needs("bool")).unwrap().unwrap_err();
    assert!(failure.to_string().contains("torch.float32"), "{failure}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn hawkeyes_workloads_compute_what_they_say_and_state_the_papers_operations() {
    for folder in ["../examples/hawkeye", "../examples/hawkeye-fp8"] {
        let mut python = std::process::Command::new(env!("PYTHON_WITH_TORCH"));
        python.args(["tests/python/workloads.py", folder]).current_dir(env!("CARGO_MANIFEST_DIR"));
        let made = python.output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn both_sides_let_go_of_their_memory_before_it_is_laid_out_for_a_timing() {
    let mut python = std::process::Command::new(env!("PYTHON_WITH_TORCH"));
    python.args(["tests/python/runner.py", "harness"]).env("PYTHONDONTWRITEBYTECODE", "1");
    let told = python.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let said = String::from_utf8_lossy(&told.stderr);
    // unittest ends well where it found no test, too.
    assert!(told.status.success() && said.contains("Ran 2 tests") && said.contains("\nOK"), "{said}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn a_problem_may_state_its_operations_and_what_is_no_count_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (workshop, runtime) = (workshop(), tokio::runtime::Builder::new_current_thread().build().unwrap());
    for (word, stated) in [
        ("2 * 64 * 32", Some(4096)),
        ("1e3", Some(1000)),
        ("'many'", None),
        ("-1", None),
        ("0.5", None),
        ("True", None),
        ("2**70", None),
    ] {
        let task = with_second_input(folder.path(), "torch.rand(64, 32)", "x * second");
        let text = format!("operations = {word}\n{}", task.reference());
        std::fs::write(folder.path().join("2_Stated.py"), text).unwrap();
        let task = load::task(&folder.path().join("2_Stated.py")).unwrap();
        let baseline = runtime.block_on(workshop.prepare(&task, &Suite::of_task(&task), &PLAN)).unwrap();
        assert_eq!(baseline.signature.stated, stated, "{word}");
    }
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn weights_and_inputs_are_of_the_precision_that_is_asked_for_and_so_is_the_tolerance() {
    let (folder, workshop) = (tempfile::tempdir().unwrap(), workshop());
    let task = with_second_input(folder.path(), "torch.rand(64, 32)", "x * second");
    let off = |by: f32| {
        format!(
            "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x, second):\n        \
             assert x.dtype == second.dtype == torch.bfloat16, x.dtype\n        return x * second + {by}\n"
        )
    };
    let half = task.clone().in_precision(Precision::Bf16);
    assert!(evaluate(&workshop, &half, &off(0.004)).unwrap().is_ok());
    let failure = evaluate(&workshop, &half, &off(0.1)).unwrap().unwrap_err();
    assert!(failure.to_string().contains("are wrong"), "{failure}");
    let failure = evaluate(&workshop, &task, &off(0.0)).unwrap().unwrap_err();
    assert!(failure.to_string().contains("torch.float32"), "{failure}");
    let norm = problem("3_LayerNorm").in_precision(Precision::Bf16);
    let seen = norm.reference_as_candidate().replace(
        "return self.norm(x)",
        "assert self.norm.weight.dtype == torch.bfloat16, self.norm.weight.dtype\n        return self.norm(x)",
    );
    assert!(seen.contains("weight.dtype") && evaluate(&workshop, &norm, &seen).unwrap().is_ok());
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn inputs_of_eight_bits_stay_as_they_are_drawn_and_a_torch_without_them_says_so() {
    let (folder, workshop) = (tempfile::tempdir().unwrap(), workshop());
    let eight = "torch.rand(64, 32).to(torch.float8_e4m3fn)";
    let task = with_second_input(folder.path(), eight, "x * second.to(x.dtype)").in_precision(Precision::Bf16);
    let seen = |dtype: &str| {
        format!(
            "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x, second):\n        \
             assert (str(x.dtype), str(second.dtype)) == ('torch.bfloat16', 'torch.{dtype}'), second.dtype\n        \
             return x * second.to(x.dtype)\n"
        )
    };
    let has = std::process::Command::new(env!("PYTHON_WITH_TORCH"))
        .args(["-c", "import torch; raise SystemExit(not hasattr(torch, 'float8_e4m3fn'))"])
        .status();
    if !has.unwrap().success() {
        let said = evaluate(&workshop, &task, &seen("bfloat16")).unwrap_err().to_string();
        assert!(said.contains("has no attribute 'float8_e4m3fn'"), "{said}");
        return;
    }
    assert!(evaluate(&workshop, &task, &seen("float8_e4m3fn")).unwrap().is_ok());
    let failure = evaluate(&workshop, &task, &seen("bfloat16")).unwrap().unwrap_err();
    assert!(failure.to_string().contains("torch.float8_e4m3fn"), "{failure}");
    let off = seen("float8_e4m3fn").replace("second.to(x.dtype)\n", "second.to(x.dtype) + 0.1\n");
    let failure = evaluate(&workshop, &task, &off).unwrap().unwrap_err();
    assert!(failure.to_string().contains("are wrong"), "{failure}");
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn indices_stay_whole_where_the_reference_needs_them_so_and_that_is_said() {
    let (folder, workshop) = (tempfile::tempdir().unwrap(), workshop());
    let task = with_second_input(folder.path(), "torch.randint(0, 32, (64,))", "x.gather(1, second[:, None])");
    let own = "import torch\nimport torch.nn as nn\n\nclass ModelNew(nn.Module):\n    def forward(self, x, second):\n        \
               return torch.stack([x[i, j] for i, j in enumerate(second.tolist())])[:, None]\n";
    assert!(evaluate(&workshop, &task, own).unwrap().is_ok());
    let labels = workshop.audit(&task).unwrap();
    assert!(
        labels.iter().any(|label| label.text.starts_with("KernelBench's own evaluation cannot run it")),
        "{labels:?}"
    );
}
