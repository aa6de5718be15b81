//! `warpsmith-mcp`: what `warpsmith` can do for a workflow, as tools of the Model Context Protocol.
//!
//! Each tool starts the program beside this one and gives back what it says. What takes long is a job, which is asked about
//! by its id; nothing that a client sends ends the server.

mod http;
mod jobs;
mod program;
mod server;
mod words;

use clap::Parser;
use rmcp::ServiceExt;
use server::Tools;
use std::{io::Write, net::SocketAddr, path::PathBuf, process::ExitCode};

/// How the server is started.
#[derive(Debug, Parser)]
#[command(
    name = "warpsmith mcp",
    version,
    about = "Serve the workflow's commands as tools of the Model Context Protocol, over standard input and output or HTTP.",
    after_help = "Examples:\n  warpsmith mcp                        # over standard input and output\n  warpsmith mcp --http 127.0.0.1:8931  # at http://127.0.0.1:8931/mcp\n  warpsmith mcp --http 0.0.0.0:8931 --token-file token"
)]
struct Arguments {
    /// Serve by streamable HTTP at this address, under /mcp; one that others can reach needs a token.
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// A file that holds the token which clients send as `Authorization: Bearer TOKEN`.
    #[arg(long, value_name = "FILE", requires = "http")]
    token_file: Option<PathBuf>,
    /// The `warpsmith` that does the work [default: the one beside this program, else the one in PATH].
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

/// Why the server did not begin, or ended: the number to end with, and the sentence.
struct Trouble(u8, String);

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => runtime.block_on(serve(arguments)),
        Err(e) => Err(Trouble(3, format!("cannot start threads: {e}"))),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(Trouble(code, why)) => {
            let _ = writeln!(std::io::stderr().lock(), "warpsmith-mcp: {why}");
            ExitCode::from(code)
        }
    }
}

async fn serve(arguments: Arguments) -> Result<(), Trouble> {
    let program = program::Program::find(arguments.program).map_err(|why| Trouble(3, why))?;
    let tools = Tools::new(program);
    let Some(address) = arguments.http else {
        let broken = |e: &dyn std::fmt::Display| Trouble(3, format!("standard input and output: {e}"));
        let running = tools.serve(rmcp::transport::stdio()).await.map_err(|e| broken(&e))?;
        return running.waiting().await.map(|_| ()).map_err(|e| broken(&e));
    };
    let token = arguments.token_file.as_deref().map(http::token).transpose().map_err(|why| Trouble(2, why))?;
    http::allowed(address, token.as_deref()).map_err(|why| Trouble(2, why))?;
    tokio::select! {
        ended = http::serve(address, token, tools) => ended.map_err(|why| Trouble(3, why)),
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}
