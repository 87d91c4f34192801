//! End to end: the real binary, the embedded plane, real PostgreSQL. One at a time, however the tests are run.

mod apart;
mod bad_input;
mod bad_store;
mod client_verbs;
mod clock_set_back;
mod cluster;
mod damaged_data;
mod direct;
mod failover;
mod full_disk;
mod kubectl;
mod members;
mod node_loss;
mod nodes;
mod older_store;
mod plain_workload;
mod plane;
mod refused;
mod restart;
mod small_disk;
mod steps;
mod strangers;
mod switchover;
mod writer;
mod zombie;
