//! The tools: each is a command of the program, and what takes long is a job.

use crate::{
    jobs::{Job, Jobs},
    program::Program,
    words::{
        Asking, Comparing, Evaluating, Listing, Looking, Naming, Pointing, Resuming, Retuning, Transforming, Words,
    },
};
use rmcp::{
    ServerHandler,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    model::{CallToolResult, ContentBlock, Implementation, ServerCapabilities, ServerConfig},
    tool, tool_handler, tool_router,
};

/// What a client is told at first.
const INSTRUCTIONS: &str = "\
Small written transformations of a kernel, each checked, tuned and kept as a checkpoint. `transform` on a task's folder begins \
a run; RUN@NAME is a checkpoint of it, or another candidate. What takes long (transform, tune, resume, evaluate, compare) gives \
back a job at once: ask `status` with its id until its state is done; `exit` 0 is success, 1 means that nothing correct came \
of it. Jobs are worked on one after another, because timing must be alone.";

/// What a tool gives back: an answer, or a complaint that the model can do something about.
type Told = CallToolResult;

/// The server of one client, or of all: the jobs are shared.
#[derive(Clone)]
pub(crate) struct Tools {
    program: Program,
    jobs: Jobs,
    tool_router: ToolRouter<Self>,
}

impl Tools {
    pub(crate) fn new(program: Program) -> Self {
        Self { jobs: Jobs::new(program.clone()), program, tool_router: Self::tool_router() }
    }

    /// Has the program say something at once.
    async fn say(&self, words: Words) -> Told {
        let words = match words {
            Ok(words) => words,
            Err(why) => return wrong(why),
        };
        match self.program.say(&words).await.and_then(crate::program::Said::answer) {
            Ok(text) => CallToolResult::success(vec![ContentBlock::text(text.trim_end())]),
            Err(why) => wrong(why),
        }
    }

    /// Begins a job.
    fn begin(&self, words: Words) -> Told {
        words.map_or_else(wrong, |words| told(&self.jobs.begin(words)))
    }
}

fn wrong(why: String) -> Told {
    CallToolResult::error(vec![ContentBlock::text(why)])
}

fn told(job: &Job) -> Told {
    CallToolResult::success(vec![ContentBlock::text(serde_json::to_string(job).unwrap_or_default())])
}

#[tool_router]
impl Tools {
    #[tool(description = "List the transformations, with passes, calls, backends and tuning parameters, as JSON.")]
    async fn list_transformations(&self, Parameters(said): Parameters<Listing>) -> Told {
        self.say(said.words()).await
    }

    #[tool(
        description = "Apply a transformation to a task (which begins a run), to a run's head or to RUN@NAME. A job."
    )]
    async fn transform(&self, Parameters(said): Parameters<Transforming>) -> Told {
        self.begin(said.words())
    }

    #[tool(description = "Search the whole space of a checkpoint again, and keep the fastest as a checkpoint. A job.")]
    async fn tune(&self, Parameters(said): Parameters<Retuning>) -> Told {
        self.begin(said.words())
    }

    #[tool(description = "Go on with a run: what is left of its sequence, then the certificate. A job.")]
    async fn resume(&self, Parameters(said): Parameters<Resuming>) -> Told {
        self.begin(said.words())
    }

    #[tool(description = "Give a checkpoint a name.")]
    async fn checkpoint(&self, Parameters(said): Parameters<Naming>) -> Told {
        self.say(said.words("checkpoint")).await
    }

    #[tool(description = "Begin a branch at a checkpoint; the run goes on there.")]
    async fn branch(&self, Parameters(said): Parameters<Naming>) -> Told {
        self.say(said.words("branch")).await
    }

    #[tool(description = "Let a run go on from RUN@NAME, a checkpoint or a branch.")]
    async fn restore(&self, Parameters(said): Parameters<Pointing>) -> Told {
        self.say(said.restore()).await
    }

    #[tool(description = "The checkpoints of a run, the tries that failed, speedups and the head, as JSON.")]
    async fn tree(&self, Parameters(said): Parameters<Looking>) -> Told {
        self.say(said.words("tree")).await
    }

    #[tool(description = "The regions, bindings and evaluation of RUN@NAME, as JSON.")]
    async fn show(&self, Parameters(said): Parameters<Pointing>) -> Told {
        self.say(said.show()).await
    }

    #[tool(description = "Compare RUN@NAME with others by region, by bindings and in time. A job, unless recorded.")]
    async fn compare(&self, Parameters(said): Parameters<Comparing>) -> Told {
        if said.recorded { self.say(said.words()).await } else { self.begin(said.words()) }
    }

    #[tool(description = "Build, check and time candidates of a task, or RUN@NAME on its run's task. A job.")]
    async fn evaluate(&self, Parameters(said): Parameters<Evaluating>) -> Told {
        self.begin(said.words())
    }

    #[tool(description = "How far a job has come and what came of it, or how far a run has.")]
    async fn status(&self, Parameters(said): Parameters<Asking>) -> Told {
        match (said.job, said.run) {
            (Some(id), None) => self.jobs.of(&id).map_or_else(wrong, |job| told(&job)),
            (None, Some(run)) => self.say(Asking::of_run(run)).await,
            _ => wrong("expected either `job`, an id that a tool gave, or `run`, a run's folder".to_owned()),
        }
    }

    #[tool(description = "End a job; what it has recorded stays, and `resume` goes on with its run.")]
    async fn cancel(&self, Parameters(said): Parameters<Asking>) -> Told {
        match (said.job, said.run) {
            (Some(id), None) => self.jobs.cancel(&id).map_or_else(wrong, |job| told(&job)),
            _ => wrong("expected `job`, an id that a tool gave".to_owned()),
        }
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Tools {
    fn get_info(&self) -> ServerConfig {
        // By default it would be the library's own name and version.
        let this = Implementation::new("warpsmith", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(this)
            .with_instructions(INSTRUCTIONS)
    }
}
