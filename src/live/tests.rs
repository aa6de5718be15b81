//! Is the live page told what stands in the records, and does it answer nobody else?
