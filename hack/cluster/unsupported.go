//go:build !linux

// Command cluster makes a Kubernetes cluster of one node out of namespaces of Linux.
package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "cluster: a node needs Linux; use any cluster you have, and set KUBECONFIG")
	os.Exit(1)
}
