//! A client of another make does a whole small workflow over both transports, with a scripted model on a simulated machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use rmcp::{
    RoleClient, ServiceExt,
    model::CallToolRequestParams,
    service::{RunningService, ServiceError},
    transport::{StreamableHttpClientTransport, TokioChildProcess},
};
use serde_json::{Value, json};
use std::{path::Path, process::Command, time::Duration};
use tokio::io::{AsyncBufReadExt, BufReader};

const SERVER: &str = env!("CARGO_BIN_EXE_warpsmith-mcp");

/// The program beside the server, which `cargo test --workspace` has built and `cargo test -p warpsmith-mcp` not.
fn program() -> String {
    let beside = Path::new(SERVER).with_file_name("warpsmith");
    if !beside.is_file() {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let build = ["build", "--quiet", "--profile", profile, "-p", "warpsmith"];
        assert!(Command::new(env!("CARGO")).args(build).status().unwrap().success());
    }
    beside.display().to_string()
}

fn server(more: &[&str]) -> tokio::process::Command {
    let mut command = tokio::process::Command::new(SERVER);
    command.arg("--program").arg(program()).args(more).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."));
    command
}

struct Client(RunningService<RoleClient, ()>);

impl Client {
    /// What a tool says, and whether it is an answer.
    async fn told(&self, tool: &'static str, said: Value) -> Result<(bool, String), ServiceError> {
        let arguments = said.as_object().unwrap().clone();
        let result = self.0.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments)).await?;
        let text = result.content.first().and_then(|block| block.as_text()).map(|text| text.text.clone());
        Ok((result.is_error != Some(true), text.unwrap()))
    }

    async fn answer(&self, tool: &'static str, said: Value) -> String {
        let (good, text) = self.told(tool, said).await.unwrap();
        assert!(good, "{tool}: {text}");
        text
    }

    /// What came of a job, when it is over.
    async fn job(&self, tool: &'static str, said: Value) -> Value {
        let begun: Value = serde_json::from_str(&self.answer(tool, said).await).unwrap();
        assert_eq!(begun["state"], "waiting", "the tool gives back at once: {begun}");
        for _ in 0..600 {
            let job = self.answer("status", json!({"job": begun["job"]})).await;
            let job: Value = serde_json::from_str(&job).unwrap();
            if job["state"] == "done" {
                assert_eq!(job["exit"], 0, "{job}");
                return job["outcome"].clone();
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{tool} does not end");
    }
}

/// Refactor, on a task that leaves nothing to a compiler.
fn script() -> String {
    let reply = |part: &str| {
        let region = part.split_once('.').unwrap().1;
        let text = format!("```cpp\n// region: {region}\n// by the script\n```\n");
        json!({"role": "coder", "round": 1, "purpose": "transform", "part": part, "reply": text}).to_string()
    };
    ["1.macros", "1.device", "2.device"].map(reply).join("\n")
}

async fn a_whole_workflow(client: &Client, folder: &Path) {
    let tools = client.0.list_all_tools().await.unwrap();
    for name in ["list_transformations", "transform", "tune", "checkpoint", "branch", "restore", "tree", "compare"] {
        assert!(tools.iter().any(|tool| tool.name == name), "{name}");
    }
    let listed = client.answer("list_transformations", json!({"backend": "cpu"})).await;
    assert!(listed.contains("\"Refactor\"") && !listed.contains("\"Split-K\""), "{listed}");
    let (script, run) = (folder.join("script.jsonl"), folder.join("W").display().to_string());
    std::fs::write(&script, self::script()).unwrap();
    let model = format!("scripted:{}", script.display());
    let begin =
        json!({"at": "examples/matmul", "name": "refactor", "model": model, "out": run, "simulate": true, "tests": 4});
    assert_eq!(client.job("transform", begin).await["head"], "c1");
    let tuned = client.job("tune", json!({"at": run, "tuner": "tpe", "tests": 3, "keep": 2})).await;
    assert_eq!(tuned["head"], "c2");
    client.answer("checkpoint", json!({"at": format!("{run}@c1"), "name": "plain"})).await;
    client.answer("branch", json!({"at": format!("{run}@plain"), "name": "other"})).await;
    client.answer("restore", json!({"at": format!("{run}@main")})).await;
    let tree: Value = serde_json::from_str(&client.answer("tree", json!({"run": run})).await).unwrap();
    assert_eq!((tree["head"].as_str(), tree["branches"].as_object().unwrap().len()), (Some("c2"), 2), "{tree}");
    assert!(client.answer("show", json!({"at": format!("{run}@plain")})).await.contains("by the script"));
    let both = [format!("{run}@plain"), format!("{run}@c0")];
    assert!(client.answer("compare", json!({"which": both, "recorded": true})).await.contains("by the script"));
    assert!(client.job("evaluate", json!({"task": both[0]})).await["evaluation"]["passed"].is_object());
    assert!(client.answer("status", json!({"run": run})).await.contains("\"rounds\""));
    what_is_wrong_is_told_and_the_server_lives_on(client, &run).await;
}

async fn what_is_wrong_is_told_and_the_server_lives_on(client: &Client, run: &str) {
    for (tool, said, why) in [
        ("tree", json!({"folder": run}), "unknown field `folder`"),
        ("transform", json!({"at": run}), "missing field `name`"),
        ("checkpoint", json!({"at": "--help", "name": "x"}), "names nothing"),
        ("status", json!({}), "expected either `job`"),
        ("status", json!({"job": "job-99"}), "there is no job \"job-99\"; the latest are job-3, job-2, job-1"),
    ] {
        let (good, refused) = client.told(tool, said).await.unwrap();
        assert!(!good && refused.contains(why), "{tool}: {refused}");
    }
    let (good, text) = client.told("restore", json!({"at": format!("{run}@nowhere")})).await.unwrap();
    assert!(!good && text.contains("there is no checkpoint \"nowhere\""), "{text}");
    assert!(client.answer("tree", json!({"run": run})).await.contains("\"head\""));
}

#[tokio::test]
async fn a_client_does_a_whole_workflow_over_standard_input_and_output() {
    let folder = tempfile::tempdir().unwrap();
    let client = Client(().serve(TokioChildProcess::new(server(&[])).unwrap()).await.unwrap());
    assert_eq!(client.0.peer_info().unwrap().server_info.as_ref().unwrap().name, "warpsmith");
    a_whole_workflow(&client, folder.path()).await;
    client.0.cancel().await.unwrap();
}

#[tokio::test]
async fn a_client_does_a_whole_workflow_over_http() {
    // The workspace's HTTP client brings no provider of its own; with features unified, this client is the same crate.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let folder = tempfile::tempdir().unwrap();
    let mut child =
        server(&["--http", "127.0.0.1:0"]).stderr(std::process::Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    let url = line.split_once("at ").unwrap().1.to_owned();
    let client = Client(().serve(StreamableHttpClientTransport::from_uri(url)).await.unwrap());
    a_whole_workflow(&client, folder.path()).await;
    client.0.cancel().await.unwrap();
    let told = server(&["--http", "0.0.0.0:0"]).output().await.unwrap();
    let why = String::from_utf8_lossy(&told.stderr).into_owned();
    assert!(told.status.code() == Some(2) && why.contains("name a token with --token-file"), "{why}");
}
