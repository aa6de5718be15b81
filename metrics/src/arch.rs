//! The architecture of a machine: of a GPU as its compilers name it, or of a CPU.

use serde::{Deserialize, Serialize, de::Error};
use std::{fmt, str::FromStr};

/// An architecture. Written as compilers name it: `sm_90`, `gfx942`, `x86_64`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Arch {
    /// An NVIDIA GPU of this compute capability.
    Cuda {
        /// Its major number.
        major: u32,
        /// Its minor number.
        minor: u32,
    },
    /// An AMD GPU, by the name of its instruction set: `gfx942`.
    Amd(String),
    /// A CPU: `x86_64`, `aarch64`.
    Cpu(String),
}

impl Arch {
    /// The CPU that this program was built for.
    #[must_use]
    pub fn host() -> Self {
        Self::Cpu(std::env::consts::ARCH.to_owned())
    }

    /// That of a compute capability such as `9.0`.
    #[must_use]
    pub fn of_capability(capability: &str) -> Option<Self> {
        let (major, minor) = capability.split_once('.')?;
        Some(Self::Cuda { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The compute capability, such as `9.0`; `None` where it has none.
    #[must_use]
    pub fn capability(&self) -> Option<String> {
        match self {
            Self::Cuda { major, minor } => Some(format!("{major}.{minor}")),
            Self::Amd(_) | Self::Cpu(_) => None,
        }
    }

    /// What code is compiled for: from compute capability 9.0 on with the instructions that only this very architecture has
    /// (`sm_90a`), such as wgmma.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Cuda { major, .. } if *major >= 9 => format!("{self}a"),
            _ => self.to_string(),
        }
    }

    /// The same as nvcc names the virtual architecture: `compute_90a`.
    #[must_use]
    pub fn virtual_target(&self) -> String {
        self.target().replace("sm_", "compute_")
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cuda { major, minor } => write!(f, "sm_{major}{minor}"),
            Self::Amd(name) | Self::Cpu(name) => f.write_str(name),
        }
    }
}

impl FromStr for Arch {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let expected = || format!("{name:?} is no architecture: expected sm_90, gfx942, x86_64 or the like");
        if let Some(number) = name.strip_prefix("sm_") {
            let number = number.trim_end_matches(['a', 'f']);
            let (major, minor) = number.split_at_checked(number.len().saturating_sub(1)).ok_or_else(expected)?;
            let digit = |text: &str| text.parse().map_err(|_| expected());
            return Ok(Self::Cuda { major: digit(major)?, minor: digit(minor)? });
        }
        let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        match name {
            _ if !plain => Err(expected()),
            _ if name.starts_with("gfx") => Ok(Self::Amd(name.to_owned())),
            _ => Ok(Self::Cpu(name.to_owned())),
        }
    }
}

impl Serialize for Arch {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Arch {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_written_as_it_is_read() {
        for name in ["sm_80", "sm_90", "sm_100", "sm_103", "gfx942", "x86_64", "aarch64"] {
            assert_eq!(name.parse::<Arch>().unwrap().to_string(), name);
        }
        assert_eq!("sm_90a".parse::<Arch>(), Ok(Arch::Cuda { major: 9, minor: 0 }));
        assert!(["", "sm_", "sm_x", "a b", "sm_9.0"].into_iter().all(|name| name.parse::<Arch>().is_err()));
    }

    #[test]
    fn from_hopper_on_the_architecture_s_own_instructions_are_allowed() {
        let target = |capability| Arch::of_capability(capability).unwrap().target();
        assert_eq!((target("9.0"), target("8.9"), target("10.0")), ("sm_90a".into(), "sm_89".into(), "sm_100a".into()));
        assert_eq!(Arch::of_capability("9.0").unwrap().virtual_target(), "compute_90a");
        assert_eq!(Arch::of_capability("12.1").unwrap().capability().as_deref(), Some("12.1"));
        assert_eq!(Arch::of_capability("nine"), None);
    }
}
