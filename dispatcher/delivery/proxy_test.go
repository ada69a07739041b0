package delivery_test

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/dispatcher/delivery"
	"github.com/merchant-operator/merchant-operator/test/dnstest"
	"github.com/merchant-operator/merchant-operator/test/leaks"
)

// Every test runs where the environment names a proxy, which net/http reads only once. There is none
// at that address.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:1"); err != nil {
			panic(err)
		}
	}
	leaks.Run(m, func() error { return nil })
}

// A proxy would resolve and connect where the guard cannot see. (One is never used for loopback
// addresses, hence the name.)
func TestTheEnvironmentsProxyIsNotUsed(t *testing.T) {
	names := dnstest.Start(t)
	names.Set("example.com", "127.0.0.1")
	r := receive(t, status(http.StatusOK))
	options := r.trusting()
	options.Resolver = names.Resolver()
	got := send(t, options, attempt("https://example.com"+r.URL[strings.LastIndexByte(r.URL, ':'):]))
	if got.Verdict != delivery.Delivered {
		t.Errorf("%+v", got)
	}
}
