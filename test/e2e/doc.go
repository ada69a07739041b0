// Package e2e tests the product as a platform team has it: installed by Helm, in a real cluster, with real pods behind
// a real Service. It runs against whatever cluster KUBECONFIG names, in which it installs the chart; `make e2e` makes
// a cluster for it and takes it down again. What it does inside, it has an agent do (agent/), which it
// reaches through the Kubernetes API's proxy to pods: it needs no way into the cluster's network.
//
// The tests have the build tag e2e: `go test ./...` knows nothing of them.
package e2e
