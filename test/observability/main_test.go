package observability

import (
	"flag"
	"testing"
)

// shared is the one running product of this package's tests; some trade has gone on before the first of them.
var shared *product

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	shared = &product{}
	defer shared.stop()
	if err := shared.start(); err != nil {
		panic(err)
	}
	if err := shared.trade(); err != nil {
		panic(err)
	}
	m.Run()
}
