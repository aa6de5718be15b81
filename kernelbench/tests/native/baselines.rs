//! What becomes of baselines, of oracles, and of candidates that use what they are to be better than.

use super::*;
use std::path::Path;
use warpsmith_kernelbench::{BaselineKernel, Baselines, Forbidden, Oracle, cuda, load};

/// A certificate of a candidate, whatever it says.
pub(super) fn certify_for(task: &Task, source: &str) -> Certificate {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let workshop = workshop();
        let rebuilt = workshop.rebuild(task, &Candidate::new(source)).await.unwrap();
        workshop.certify(task, rebuilt, &PLAN).await.unwrap()
    })
}

/// The reference by another way, a baseline's body as its source.
fn baseline(name: &str, body: &str) -> BaselineKernel {
    BaselineKernel {
        name: name.into(),
        source: kernel(body),
        link: vec![],
        environment: BTreeMap::new(),
        forbid: Forbidden::default(),
    }
}

/// The usual task with these baselines, of which the first is what speedups are over.
fn task_with(kernels: Vec<BaselineKernel>, oracle: Option<&str>) -> Task {
    let mut task = task();
    let oracle = oracle.map(|name| Oracle { baseline: name.into(), cases: vec!["large".into()] });
    let against = kernels.first().map(|kernel| kernel.name.clone());
    if let Source::Context(context) = &mut task.source {
        context.baselines = Baselines { kernels, against, oracle };
    }
    task
}

/// Many times the work.
const SLOW: &str = "for (int r = 0; r < 40; ++r) for (int64_t i = 0; i < n; ++i) { volatile float y = x[i] * by + 1; out[i] = y; }\n\
                    for (int64_t i = 0; i < n; ++i) sum[i] += x[i];";

#[test]
fn speedups_are_over_the_baseline_that_the_task_names_and_all_say_so() {
    let _alone = alone();
    let task = task_with(vec![baseline("slow", SLOW), baseline("same", RIGHT)], None);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let workshop = workshop();
    let prepared = runtime.block_on(workshop.prepare(&task, &suite(&task), &PLAN)).unwrap();
    assert_eq!((prepared.against.as_deref(), prepared.variants.len()), (Some("slow"), 1));
    let over = prepared.variants[0].speedup.unwrap();
    assert!(prepared.variants[0].name == "same" && over.ratio > 3.0, "{over:?}");
    let timed = evaluate_for(&task, &kernel(RIGHT)).unwrap().unwrap();
    assert!(timed.against.as_deref() == Some("slow") && timed.speedup.ratio > 3.0, "{timed:?}");
}

#[test]
fn a_baseline_or_an_oracle_that_is_wrong_is_refused_before_any_candidate() {
    let _alone = alone();
    let wrong = "for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * by; sum[i] += x[i]; }";
    let wrong_when_large = "for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * by + (n < 5000); sum[i] += x[i]; }";
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let told = |kernels, oracle| {
        let task = task_with(kernels, oracle);
        runtime.block_on(workshop().prepare(&task, &suite(&task), &PLAN)).unwrap_err().to_string()
    };
    let oracle = told(vec![baseline("quick", wrong)], Some("quick"));
    assert!(oracle.starts_with("the oracle `quick` is refused: it differs from the reference"), "{oracle}");
    let other = told(vec![baseline("right", RIGHT), baseline("quick", wrong_when_large)], Some("right"));
    assert!(other.starts_with("the baseline `quick` is refused: it does not compute the same"), "{other}");
    let mut absent = baseline("vendor", RIGHT);
    absent.link = vec!["warpsmith_has_none".into()];
    let absent = told(vec![absent], None);
    assert!(absent.contains("needs the library warpsmith_has_none, which is not here"), "{absent}");
}

#[test]
fn an_oracle_says_what_is_right_on_large_cases_once_it_agreed_on_small_ones() {
    let _alone = alone();
    // What the reference would call wrong on the large case shows who was asked there.
    let own = "for (int64_t i = 0; i < n; ++i) { out[i] = x[i] * by + (n < 5000 ? 1 : 2); sum[i] += x[i]; }";
    let task = task_with(vec![baseline("own", own)], Some("own"));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(workshop().prepare(&task, &suite(&task), &PLAN)).unwrap();
    let failure = evaluate_for(&task, &kernel(RIGHT)).unwrap().unwrap_err();
    assert!(matches!(&failure, Failure::Mismatch { case, .. } if case == "large"), "{failure}");
    assert!(evaluate_for(&task, &kernel(own)).unwrap().is_ok());
    let certificate = certify_for(&task, &kernel(own));
    let rows: Vec<&str> = certificate.checked.iter().map(|row| row.what.as_str()).collect();
    assert!(rows.contains(&"own in the reference's place on large"), "{rows:?}");
    assert!(rows.iter().any(|row| row.starts_with("times beside own's")), "{rows:?}");
    let CertificateVerdict::Certified(timed) = &certificate.verdict else { panic!("{certificate:?}") };
    assert_eq!(timed.against.as_deref(), Some("own"));
}

/// A task that forbids `libgomp`, which is found wherever a compiler is.
fn task_with_library() -> Task {
    let mut kernel = baseline("vendor", RIGHT);
    kernel.forbid = Forbidden {
        link: vec!["gomp".into()],
        symbols: vec!["GOMP_*".into(), "omp_get_*".into()],
        include: vec!["omp.h".into()],
        ..Forbidden::default()
    };
    task_with(vec![kernel], None)
}

#[test]
fn a_candidate_that_calls_the_library_fails_whichever_way_it_does() {
    let _alone = alone();
    let task = task_with_library();
    let declared = "extern \"C\" int omp_get_max_threads(void);";
    let called = format!("out[0] = omp_get_max_threads();\n{RIGHT}");
    let by_hand = "extern \"C\" void *open_it(const char *, int) __asm__(\"dlopen\");\n\
                   __attribute__((constructor)) static void before() { open_it(\"libgomp.so.1\", 2); }";
    for (source, how) in [
        (program("#include <omp.h>", RIGHT), "includes omp.h"),
        (program(declared, &called), "calls omp_get_max_threads"),
        (program(by_hand, RIGHT), "by dlopen"),
    ] {
        let failure = evaluate_for(&task, &source).unwrap().unwrap_err();
        let Failure::Library { how: told, .. } = &failure else { panic!("{failure:?}") };
        assert!(told.contains(how), "{told}");
    }
    assert!(evaluate_for(&task, &program("// omp.h, dlopen, libgomp", RIGHT)).unwrap().is_ok());
}

/// A matrix product's shared object with cuBLAS behind it, and whether a candidate that is the same is refused.
#[test]
#[cfg_attr(not(has_cublas), ignore = "needs an nvcc whose toolkit has cuBLAS")]
fn the_matrix_products_in_cuda_are_linked_with_cublas_and_a_candidate_that_calls_it_is_refused() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/cuda");
    let options = cuda::Options::new(env!("CARGO_BIN_EXE_warpsmith-kernel").into(), vec![], cache());
    let hopper = || Arch::Cuda { major: 9, minor: 0 };
    for (name, library, creates, header) in [
        ("matmul_fp16", "libcublas.so.", "cublasCreate_v2", "cublas_v2.h"),
        ("matmul_fp32", "libcublas.so.", "cublasCreate_v2", "cublas_v2.h"),
        ("matmul_fp8", "libcublasLt.so.", "cublasLtCreate", "cublasLt.h"),
    ] {
        let task = load::task(&examples.join(name)).unwrap();
        let kernel = task.baselines().against().unwrap();
        let object = cuda::build_baseline(&options, hopper(), &task, kernel).unwrap().unwrap();
        let bytes = std::fs::read(object).unwrap();
        let holds = |what: &str| bytes.windows(what.len()).any(|part| part == what.as_bytes());
        assert!(holds(library) && holds(creates) && holds("/lib"), "{name}");
        let built = cuda::build_candidate(&options, hopper(), &task, &Candidate::new(&kernel.source)).unwrap();
        let said = format!("includes {header}");
        assert!(matches!(&built, Err(Failure::Library { how, .. }) if *how == said), "{built:?}");
    }
    let task = load::task(&examples.join("matmul_fp32")).unwrap();
    let by_name = "extern \"C\" int cublasCreate_v2(void **);\nextern \"C\" int matmul(float *c, const float *, const float *, \
                   int32_t, cudaStream_t) { void *handle; return cublasCreate_v2(&handle) + (c == handle); }\n";
    let built = cuda::build_candidate(&options, hopper(), &task, &Candidate::new(by_name)).unwrap();
    assert!(matches!(&built, Err(Failure::Library { how, .. }) if how == "calls cublasCreate_v2"), "{built:?}");
}
