//! AMD GPUs that a task may be written for and that are not here: kernels are compiled for them, and not run (PEAK §5).

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// An architecture of AMD's that kernels in HIP are compiled for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gfx {
    /// MI200: CDNA 2.
    #[default]
    Gfx90a,
    /// MI300: CDNA 3.
    Gfx942,
    /// MI350: CDNA 4.
    Gfx950,
}

impl Gfx {
    /// All that there are.
    pub const ALL: [Self; 3] = [Self::Gfx90a, Self::Gfx942, Self::Gfx950];

    /// As compilers name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gfx90a => "gfx90a",
            Self::Gfx942 => "gfx942",
            Self::Gfx950 => "gfx950",
        }
    }

    /// The GPUs that have it.
    #[must_use]
    pub const fn full_name(self) -> &'static str {
        match self {
            Self::Gfx90a => "AMD MI200",
            Self::Gfx942 => "AMD MI300",
            Self::Gfx950 => "AMD MI350",
        }
    }

    /// What a thread block has of LDS at most, in bytes.
    #[must_use]
    pub const fn lds_bytes(self) -> u64 {
        match self {
            Self::Gfx90a | Self::Gfx942 => 64 << 10,
            Self::Gfx950 => 160 << 10,
        }
    }
}

impl fmt::Display for Gfx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Gfx {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Self::ALL.map(Self::name).join(", ");
        let found = Self::ALL.into_iter().find(|one| one.name() == text);
        found.ok_or_else(|| format!("kernels in HIP are not compiled for {text:?}: there are {}", known()))
    }
}
