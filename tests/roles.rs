//! Does a role ask the endpoint that is its own, with the key that is its own, and nobody else's?
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../agents/tests/endpoint/mod.rs"]
mod endpoint;
mod program;

use endpoint::{Act, Endpoint};
use program::{KEY, TASK, Told, files, warpsmith};
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

#[test]
fn a_key_is_not_sent_to_a_roles_address_that_only_a_runs_folder_names() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    run(folder.path(), &format!("base_url = '{}'\n", judge.url()), &common, "openai:hosted").ended(0);
    let asked = judge.requests().len();
    let settings = folder.path().join("here.toml");
    let resume = |text: &str| {
        fs::write(&settings, text).unwrap();
        let (settings, out) = (settings.display().to_string(), folder.path().join("run").display().to_string());
        let mut command = warpsmith(&["--config", &settings, "resume", &out, "--rounds", "4"]);
        Told::of(command.env("OPENAI_BASE_URL", common.url()).env("OPENAI_API_KEY", KEY).output().unwrap())
    };
    let told = resume(&format!("[model.roles.judge]\napi_key = '{OWN}'\n")).ended(2);
    assert!(told.err.contains("this run's judge asked") && told.err.contains("model.roles.judge.base_url"), "{told:?}");
    assert_eq!(judge.requests().len(), asked);
    let url = judge.url();
    resume(&format!("[model.roles.judge]\napi_key = '{OWN}'\nbase_url = '{url}'\n")).ended(0);
    assert!(judge.requests().len() > asked && keys(&judge).ends_with(&[format!("Bearer {OWN}")]));
}

#[test]
fn texts_of_this_machine_are_not_sent_to_an_address_that_only_a_runs_folder_names() {
    let (folder, common, judge) = (tempfile::tempdir().unwrap(), saying(CANDIDATE), saying(ADVICE));
    run(folder.path(), &format!("base_url = '{}'\n", judge.url()), &common, "openai:hosted").ended(0);
    // As somebody would hand it on who wants to see what lies here.
    let (run, texts) = (folder.path().join("run"), folder.path().join("texts"));
    fs::create_dir(&texts).unwrap();
    fs::write(texts.join("private.txt"), "what is nobody else's").unwrap();
    let header = fs::read_to_string(run.join("run.toml")).unwrap();
    let header = header.replace("\ncontext = \"\"\n", &format!("\ncontext = \"folder:{}\"\n", texts.display()));
    assert!(header.contains("folder:"), "{header}");
    fs::write(run.join("run.toml"), header).unwrap();
    let asked = [&common, &judge].map(|endpoint| endpoint.requests().len());
    let resume = |url: Option<String>| {
        let mut command = warpsmith(&["resume", &run.display().to_string(), "--rounds", "4"]);
        url.map(|url| command.env("OPENAI_BASE_URL", url));
        Told::of(command.output().unwrap()).ended(2).err
    };
    let why = "texts of this machine are not sent to an address that only a run's folder names";
    assert!(resume(None).contains(why), "without a key, too");
    let told = resume(Some(common.url()));
    assert!(told.contains("this run's judge asked") && told.contains(why), "{told}");
    assert_eq!([&common, &judge].map(|endpoint| endpoint.requests().len()), asked);
}
