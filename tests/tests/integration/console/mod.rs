//! The console: `kagiri serve`, its API and its pages.

mod access;
mod api;
mod hosts;
mod jobs;
mod pages;
mod policies;
mod remote;
mod request;
mod settings;
mod storage;
mod tune;
