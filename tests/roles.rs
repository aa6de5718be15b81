//! Does a role ask the endpoint that is its own, with the key that is its own, and nobody else's?

use crate::endpoint::{Act, Endpoint};
use crate::program::{KEY, TASK, Told, files, warpsmith};
use std::fs;

const CANDIDATE: &str = "```cpp\n// simulate: us=50 build_ms=1 run_ms=1\nvoid silu_and_mul() {}\n```";
const ADVICE: &str =
    r#"{"bottleneck": "the loop", "optimization method": "less work", "modification plan": "do less"}"#;
const OWN: &str = "sk-the-judges-own-4712";

fn saying(text: &'static str) -> Endpoint {
    Endpoint::start(move |_, _| Act::Say(text.to_owned()))
}

/// The keys that came along, each once.
fn keys(endpoint: &Endpoint) -> Vec<String> {
    let mut keys: Vec<String> =
        endpoint.requests().iter().map(|request| request.authorization.clone().unwrap_or_default()).collect();
    keys.dedup();
    keys
}

/// A run of two rounds, and what was said; its Judge's settings are these.
fn run(folder: &std::path::Path, judge: &str, common: &Endpoint, model: &str) -> Told {
    let (settings, out) = (folder.join("settings.toml"), folder.join("run").display().to_string());
    fs::write(&settings, format!("[model]\nretries = 1\npatience_s = 0\n[model.roles.judge]\n{judge}")).unwrap();
    let settings = settings.display().to_string();
    let run = ["--config", &settings, "run", TASK, "--model", model, "--simulate", "--shapes", "task"];
    let mut command = warpsmith(&[&run[..], &["--rounds", "2", "--repetitions", "5", "--out", &out]].concat());
    Told::of(command.env("OPENAI_BASE_URL", common.url()).env("OPENAI_API_KEY", KEY).output().unwrap())
}

#[test]
fn a_role_asks_its_own_endpoint_with_its_own_key_and_the_common_key_goes_nowhere_else() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    let key = folder.path().join("key");
    fs::write(&key, format!("{OWN}\n")).unwrap();
    let url = judge.url();
    let settings = format!("model = 'local'\nbase_url = '{url}'\napi_key_file = '{}'\n", key.display());
    let told = run(folder.path(), &settings, &common, "openai:hosted").ended(0);
    assert_eq!(keys(&common), [format!("Bearer {KEY}")]);
    assert_eq!(keys(&judge), [format!("Bearer {OWN}")]);
    assert!(judge.requests().iter().all(|request| request.body["model"] == "local"));
    assert!(common.requests().iter().all(|request| request.body["model"] == "hosted"));
    assert!(told.out.contains("hosted at ") && told.out.contains("; judge: local at "), "{told:?}");
    for file in files(&folder.path().join("run")) {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        for secret in [KEY, OWN] {
            assert!(!text.contains(secret), "{secret} in {}", file.display());
        }
    }
}

#[test]
fn without_a_key_of_its_own_a_roles_endpoint_gets_none() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    run(folder.path(), &format!("base_url = '{}'\n", judge.url()), &common, "openai:hosted").ended(0);
    assert_eq!((keys(&common), keys(&judge)), (vec![format!("Bearer {KEY}")], vec![String::new()]));
    // Its own key for the common endpoint.
    let (other, common) = (tempfile::tempdir().unwrap(), saying(CANDIDATE));
    run(other.path(), &format!("api_key = '{OWN}'\n"), &common, "openai:hosted");
    assert!(keys(&common).contains(&format!("Bearer {OWN}")) && keys(&common).contains(&format!("Bearer {KEY}")));
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let (folder, common) = (tempfile::tempdir().unwrap(), saying(CANDIDATE));
    let told = run(folder.path(), "base_url = 'https://api.openai.com/v1'\n", &common, "openai:hosted").ended(2);
    assert!(told.err.contains("there is no key for the judge") && told.err.contains("model.roles.judge"), "{told:?}");
    let told = run(folder.path(), "api_key_file = '/nowhere/key'\n", &common, "openai:hosted").ended(2);
    assert!(told.err.contains("model.roles.judge.api_key_file"), "{told:?}");
    assert!(common.requests().is_empty());
    let settings = folder.path().join("settings.toml").display().to_string();
    let doctor = Told::of(warpsmith(&["--config", &settings, "doctor"]).output().unwrap());
    assert!(doctor.out.contains("endpoint of the judge") && doctor.out.contains("/nowhere/key"), "{doctor:?}");
}

/// What resuming a run says with these settings here, and with these variables.
fn resumed(folder: &std::path::Path, here: &str, variables: &[(&str, &str)]) -> Told {
    let settings = folder.join("here.toml");
    fs::write(&settings, here).unwrap();
    let (settings, out) = (settings.display().to_string(), folder.join("run").display().to_string());
    let mut command = warpsmith(&["--config", &settings, "resume", &out, "--rounds", "4"]);
    Told::of(command.envs(variables.iter().copied()).output().unwrap())
}

#[test]
fn nothing_is_sent_to_an_address_that_only_a_runs_folder_names() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    run(folder.path(), &format!("base_url = '{}'\n", judge.url()), &common, "openai:hosted").ended(0);
    let asked = || [&common, &judge].map(|endpoint| endpoint.requests().len());
    let before = asked();
    let (key, url) = (format!("api_key = '{OWN}'\n"), format!("base_url = '{}'\n", judge.url()));
    let (at, held) = (common.url(), ("OPENAI_API_KEY", KEY));
    let why = "not sent to an address that only a run's folder names";
    // Without a key, with the common one, and with a role's own.
    for (here, variables) in
        [(String::new(), vec![]), (String::new(), vec![held]), (format!("[model.roles.coder]\n{key}"), vec![])]
    {
        let told = resumed(folder.path(), &here, &variables).ended(2);
        assert!(told.err.contains("this run asked ") && told.err.contains(why), "{here}: {told:?}");
    }
    for here in [String::new(), format!("[model.roles.judge]\n{key}")] {
        let told = resumed(folder.path(), &here, &[("OPENAI_BASE_URL", &at), held]).ended(2);
        assert!(told.err.contains("this run's judge asked ") && told.err.contains(why), "{here}: {told:?}");
        assert!(told.err.contains("model.roles.judge.base_url"), "{told:?}");
    }
    // To end it nobody is asked, and it matters to nobody who would be.
    let out = folder.path().join("run").display().to_string();
    Told::of(warpsmith(&["finish", &out]).output().unwrap()).ended(0);
    assert_eq!(asked(), before);
    let here = format!("[model.roles.judge]\n{key}{url}");
    resumed(folder.path(), &here, &[("OPENAI_BASE_URL", &at), held]).ended(0);
    assert!(asked()[1] > before[1] && keys(&judge).ends_with(&[format!("Bearer {OWN}")]));
}

#[test]
fn an_ablation_asks_each_role_as_a_run_does() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    let at = |name: &str| folder.path().join(name).display().to_string();
    let spec = "name = 'a'\nsummary = ''\ntasks = 'examples/silu_and_mul'\n[settings.model.roles.judge]\ntemperature = 0.5\n\
                [[variant]]\nname = 'one'\npolicy = 'cudaforge'\nrounds = 2\n";
    fs::write(at("a.toml"), spec).unwrap();
    let url = judge.url();
    let own =
        format!("[model.roles.judge]\nbase_url = '{url}'\napi_key = '{OWN}'\n[model.roles.coder]\napi_key = '{OWN}'\n");
    fs::write(at("settings.toml"), own).unwrap();
    fs::create_dir(at("tasks")).unwrap();
    std::os::unix::fs::symlink(fs::canonicalize("examples/silu_and_mul").unwrap(), at("tasks/silu_and_mul")).unwrap();
    let (settings, spec, out, tasks) = (at("settings.toml"), at("a.toml"), at("out"), at("tasks"));
    let mut command = warpsmith(&[
        "--config",
        &settings,
        "ablate",
        &spec,
        "--tasks",
        &tasks,
        "--out",
        &out,
        "--",
        "--simulate",
        "--model",
        "openai:hosted",
    ]);
    // The Planner and the Tester, whom nobody asks here, would have no key.
    Told::of(command.env("OPENAI_BASE_URL", common.url()).output().unwrap()).ended(0);
    assert_eq!((keys(&common), keys(&judge)), (vec![format!("Bearer {OWN}")], vec![format!("Bearer {OWN}")]));
    assert!(judge.requests().iter().all(|request| request.body["temperature"] == 0.5));
}
