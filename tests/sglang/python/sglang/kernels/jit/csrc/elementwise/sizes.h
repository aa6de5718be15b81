#pragma once
constexpr int kThreads = 128;
