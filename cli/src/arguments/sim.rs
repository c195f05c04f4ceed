// SPDX-License-Identifier: Apache-2.0
//! The words of `partage sim`.

use std::ffi::OsString;

use clap::Args;

/// Run COMMAND on a simulated machine, without a GPU
#[derive(Args, Debug, Default)]
#[command(
    after_help = "COMMAND uses simulated GPUs through a simulated CUDA driver, and a broker of the
simulated machine. Nothing reaches a real GPU. Without COMMAND a shell starts
there. A second `partage sim` joins the machine; the last one to end removes it.
Programs that use the CUDA driver API run (tinygrad, Numba, plain cu* calls).
Programs that load the CUDA runtime as a library run with --cuda-runtime, on
stand-ins for NVIDIA's libraries: PyTorch where its kernels carry PTX (Debian
13's), and what torch.compile makes. A runtime linked into the program (JAX,
CuPy) refuses the simulated driver.

Examples:
  partage sim                                a shell on the simulated machine
  partage sim -- partage run -m 25% -- python train.py
  partage sim -- partage ps                  from a second terminal
  partage sim --gpus 4 --memory 16GiB --machine four -- bash"
)]
pub struct Sim {
    /// Number of GPUs (default 2)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub gpus: Option<u32>,
    /// Memory of each GPU (default: the profile's)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub memory: Option<String>,
    /// Model of the GPUs: h200 (default), a100, l4, t4, gb10
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// Name of the machine to create or join: letters, digits, . _ -
    #[arg(long, value_name = "NAME", default_value = "default")]
    pub machine: String,
    /// Kernels of machine code: `refuse` (default) says how to get PTX
    #[arg(long, value_name = "WHAT", value_parser = ["refuse", "no-op"])]
    pub machine_code: Option<String>,
    /// Hand out PTX to programs that ask NVRTC for machine code
    #[arg(long)]
    pub nvrtc_ptx: bool,
    /// Load stand-ins for libcudart, cuBLAS and their companions, for PyTorch
    #[arg(long)]
    pub cuda_runtime: bool,
    /// Let programs reserve more GPU memory than the disk holds; who fills it dies of SIGBUS
    #[arg(long)]
    pub overcommit: bool,
    /// Let other users' processes in, too: those of a container, for example
    #[arg(long)]
    pub shared: bool,
    /// Print what `podman run` needs for the running machine, or for these GPUs
    #[arg(
        long,
        value_name = "N,N",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "",
        conflicts_with_all = [
            "command", "shared", "gpus", "memory", "profile", "machine_code", "nvrtc_ptx", "cuda_runtime",
            "overcommit",
        ]
    )]
    pub mounts: Option<String>,
    /// The program and its arguments; without it, a shell
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}
