// Package leaks looks for goroutines that the tests of a package have left behind, after the last of them.
package leaks

import (
	"log"
	"net/http"
	"testing"

	"go.uber.org/goleak"
)

// Run runs the tests of a package, calls stop, which ends what they share, and then ends the program in failure if a
// goroutine has not ended. It waits for those that are about to.
func Run(m *testing.M, stop func() error) {
	code := m.Run()
	if err := stop(); err != nil {
		log.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	// client-go keeps its connections to a Kubernetes API in a cache that outlives all clients.
	// apimachinery's filter of a watch, which controller-runtime uses, blocks forever on an event that comes while the watch stops.
	if err := goleak.Find(goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
		goleak.IgnoreTopFunction("k8s.io/apimachinery/pkg/watch.(*filteredWatch).loop")); err != nil && code == 0 {
		log.Fatalf("the tests have passed, but left goroutines: %v", err)
	}
}
