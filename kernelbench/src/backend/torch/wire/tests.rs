//! Does what is asked reach Python, and does what it answers come back?

use super::{
    super::values::{Kind, OutputTensor, Written},
    *,
};
use crate::sandbox::{kernel_child::Numbered, process, socket};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    process::{Child, Command},
    time::Duration,
};

/// Says what it hears, and whether either side of the harness knows what it is asked; and values, there and back.
const ECHO: &str = "
import sys
sys.path.insert(0, sys.argv[2])
import torch, candidate, verifier, wire
VALUE = [1, 2.5, True, None, 'text', (torch.zeros(2, 3), [torch.float16]), {'a': float('inf'), 3: ()}]
spec = lambda t: {'at': 64, 'shape': list(t.shape), 'dtype': wire.name_of(t.dtype)}
same = lambda value: repr(wire.decode(value, lambda s: torch.zeros(s['shape']))) == repr(VALUE)
line = wire.Line(int(sys.argv[1]))
while (heard := line.hear()) is not None:
    known = hasattr(candidate.Runner, heard['do']) or hasattr(verifier.Verifier, heard['do'])
    same_value = heard['do'] == 'construct' and same(heard['init'])
    line.say({'nonce': heard['nonce'], 'heard': heard, 'known': known, 'same': same_value,
              'value': wire.encode(VALUE, spec)})
";

#[derive(Deserialize)]
struct Echo {
    heard: serde_json::Value,
    known: bool,
    same: bool,
    value: Input,
}

struct Python(Child, OwnedFd);

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Python {
    fn start() -> Self {
        let (ours, theirs) = socket::pair().expect("a pair of sockets");
        let mut command = Command::new(env!("PYTHON_WITH_TORCH"));
        command.args(["-B", "-c", ECHO]).arg(theirs.as_raw_fd().to_string());
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/harness"));
        process::detach(&mut command, vec![theirs.as_raw_fd()]);
        Self(command.spawn().expect("a Python"), ours)
    }

    fn echo(&self, ask: &Ask) -> Echo {
        let sent = serde_json::to_vec(&Numbered { nonce: 7, body: ask }).expect("JSON");
        socket::send(&self.1, &sent, &[]).expect("it is sent");
        let mut packet = vec![0; 1 << 16];
        for _ in 0..600 {
            if let Some(length) = socket::receive(&self.1, &mut packet).expect("a line") {
                let said: Numbered<Echo> = serde_json::from_slice(&packet[..length]).expect("JSON");
                assert_eq!(said.nonce, 7);
                return said.body;
            }
            socket::wait_for_either(&self.1, &self.1, Duration::from_millis(100)).expect("a poll");
        }
        panic!("no answer to {ask:?}")
    }
}

/// One of each kind: a new one does not compile before it stands here.
fn all(value: Input) -> Vec<Ask> {
    let tensor = OutputTensor {
        shape: vec![2, 3],
        stride: vec![3, 1],
        dtype: "float32".into(),
        device: "cuda".into(),
        address: u64::MAX >> 8,
        bytes: 24,
        inside: None,
        handle: Some("aGFuZGxl".into()),
        at: Some(512),
        room: Some(1 << 40),
    };
    let output = Written::Other(Kind::Tuple(vec![Written::Other(Kind::Tensor(tensor))]));
    let outputs = Outputs { reference: vec![output.clone()], candidate: vec![output.clone()], slots: vec![0] };
    let comparing = Comparing { outputs: outputs.clone(), atol: 1e-4, rtol: 1e-2, oracle: Some(1e-6) };
    let module =
        Module { path: "/x.py".into(), name: "candidate".into(), entry: "ModelNew".into(), headers: "slim".into() };
    let arena = Arena { handle: None, bytes: 4096 };
    let construct = Construct { init: value.clone(), dtype: "float32".into(), compile: None, tf32: true };
    let first = Ask::Facts;
    match first {
        Ask::Facts
        | Ask::Scan { .. }
        | Ask::Open { .. }
        | Ask::Offload
        | Ask::LayOut
        | Ask::LayOutAnew
        | Ask::Draw { .. }
        | Ask::SpotCheck { .. }
        | Ask::Ranges(_)
        | Ask::Compare(_)
        | Ask::CompareInPlace(_)
        | Ask::Audit(_)
        | Ask::Load(_)
        | Ask::Construct(_)
        | Ask::MapInputs { .. }
        | Ask::SetInputs { .. }
        | Ask::Prepare { .. }
        | Ask::RandomizeAllocations { .. }
        | Ask::Run { .. }
        | Ask::RunFirst { .. }
        | Ask::Trace
        | Ask::PrepareCounters { .. }
        | Ask::ReadCounters
        | Ask::MoreCounters
        | Ask::ReleaseOutputs
        | Ask::TrimMemory { .. } => {}
    }
    vec![
        first,
        Ask::Scan { path: "/p.py".into(), dtype: "float32".into(), casts_all: true },
        Ask::Open {
            path: "/p.py".into(),
            dtype: "float32".into(),
            seed: 42,
            casts_all: true,
            most_slots: 8,
            budget: 1 << 30,
        },
        Ask::Offload,
        Ask::LayOut,
        Ask::LayOutAnew,
        Ask::Draw { seeds: vec![u64::MAX >> 12], signed: true },
        Ask::SpotCheck { seed: 1, candidate: vec![output] },
        Ask::Ranges(outputs),
        Ask::Compare(comparing.clone()),
        Ask::CompareInPlace(comparing.clone()),
        Ask::Audit(comparing),
        Ask::Load(module),
        Ask::Construct(construct),
        Ask::MapInputs { arena },
        Ask::SetInputs { inputs: vec![value] },
        Ask::Prepare { slots: vec![0, 1] },
        Ask::RandomizeAllocations { sizes: vec![1 << 20], count: 2 },
        Ask::Run { slots: vec![1] },
        Ask::RunFirst { slots: vec![1] },
        Ask::Trace,
        Ask::PrepareCounters { names: vec!["gpu__time_duration.sum".into()] },
        Ask::ReadCounters,
        Ask::MoreCounters,
        Ask::ReleaseOutputs,
        Ask::TrimMemory { all: true },
    ]
}

#[test]
#[cfg_attr(not(has_torch), ignore = "needs a Python with torch")]
fn python_hears_what_is_asked_and_values_come_back_as_they_went() {
    let python = Python::start();
    let value = python.echo(&Ask::Facts).value;
    assert_eq!(value.tensors().len(), 1);
    for ask in all(value) {
        let Echo { heard, known, same, .. } = python.echo(&ask);
        assert!(known, "the harness does not know {ask:?}");
        assert_eq!(serde_json::from_value::<Ask>(heard).expect("an ask"), ask);
        assert!(same || !matches!(ask, Ask::Construct(_)), "the value came back as another");
    }
}

#[test]
fn an_answer_is_told_from_what_was_raised() {
    let read = |text: &str| serde_json::from_str::<Numbered<Said<Trimmed>>>(text).map(|said| said.body);
    let trimmed = read(r#"{"nonce": 1, "most": 5, "refused": 1}"#);
    assert!(matches!(trimmed, Ok(Said::Answer(Trimmed { most: 5, refused: 1 }))));
    let raised = r#"{"nonce": 1, "raised": {"error": "E", "traceback": "", "memory": true}}"#;
    assert!(matches!(read(raised), Ok(Said::Raised { raised: Raised { memory: true, .. } })));
    assert!(read(r#"{"nonce": 1, "least": 5}"#).is_err());
}
