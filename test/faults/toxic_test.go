//go:build faults

package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/merchant-operator/merchant-operator/test/fixture"
)

// wire is what lies between two programs, and can be bad.
type wire struct{ *toxiproxy.Proxy }

// layWire leads to the address.
func layWire(t testing.TB, to string) wire {
	t.Helper()
	// Not port 0: a client that dials again while the wire is cut could be given the wire's own port, and be
	// connected to itself.
	var listen string
	if err := fixture.Choose(&listen); err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	proxy := toxiproxy.NewProxy(server, "wire", listen, to)
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	return wire{proxy}
}

// poison makes it bad until it is healed. The attributes are JSON, as toxiproxy documents them.
func (w wire) poison(t testing.TB, kind, stream, attributes string) {
	t.Helper()
	toxic := fmt.Sprintf(`{"name":"%s","type":"%s","stream":"%s","attributes":%s}`, kind, kind, stream, attributes)
	if _, err := w.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
		t.Fatal(err)
	}
}

func (w wire) heal() { w.Toxics.ResetToxics(context.Background()) }

// cut closes it, and mend opens it again on the same address.
func (w wire) cut() { w.Stop() }

func (w wire) mend(t testing.TB) {
	t.Helper()
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
}
