// Package report is what the benchmarks have in common in telling what they measured: the machine, medians, a line for each ratio
// for programs to read, and a file of JSON.
package report
