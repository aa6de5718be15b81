//! Other hosts: whole steps of the workshop carried through NATS `JetStream` to workers anywhere.
//!
//! An orchestrator publishes jobs and believes what comes back; its own record is the truth, and the message system only
//! carries work. A worker takes jobs, does them in its own workshop, and signs what it found.

pub mod courier;
pub mod identity;
pub mod look;
pub mod message;
pub mod server;
pub mod worker;

use warpsmith::hosts::Hosts;

/// What the program asks other hosts by.
pub const HOSTS: Hosts = Hosts { gather: courier::gather, serve: worker::serve, look: look::look };
