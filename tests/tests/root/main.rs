//! Tests with namespaces on this kernel, as root (`just test-root`).

#![allow(clippy::unwrap_used)] // helpers of tests

mod adoption;
mod agent;
mod alive;
mod audit;
mod auto;
mod behind;
mod buffer;
mod cgroup;
mod classify;
mod cli;
mod cli_lab;
mod cli_media;
mod cli_rtp;
mod cli_sfu;
mod cli_top;
mod cli_truth;
mod client;
mod client_active;
#[path = "../client_lab/mod.rs"]
mod client_lab;
mod control;
mod decoded;
mod delay;
mod delay_lab;
mod delay_rtcp;
mod demo;
mod devices;
mod discover;
mod explain;
mod fuzz;
mod ice;
mod lab;
mod metadata;
mod metrics;
mod mishaps;
mod mistakes;
mod network;
mod option;
mod passive;
mod places;
#[path = "../player_lab/mod.rs"]
mod player_lab;
mod preempt;
mod probe;
mod race;
mod reload;
mod ring;
mod ring_flv;
mod ring_game;
#[allow(dead_code)] // it uses a part
#[path = "../ring_lab/mod.rs"]
mod ring_lab;
mod ring_layers;
mod ring_pictures;
mod ring_player;
mod ring_rtsp;
mod ring_small;
mod role;
mod rtt;
mod rules;
mod segment;
mod socket;
mod sockopt;
mod sockopt_lab;
mod srt;
mod stamp;
mod stamp_lab;
mod stamp_place;
mod stamp_probed;
mod stream;
mod survive;
#[path = "../survive_lab/mod.rs"]
mod survive_lab;
mod tc;
mod tcp_real;
mod tcp_real_hostile;
#[path = "../tcp_real_lab/mod.rs"]
mod tcp_real_lab;
mod tcp_real_operate;
mod tcp_real_options;
mod teardown;
#[path = "../teardown_lab/mod.rs"]
mod teardown_lab;
mod truncate;
mod ts;
mod vanished;
mod wanted;
