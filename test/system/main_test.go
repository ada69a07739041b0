package system

import (
	"flag"
	"testing"
)

// shared is the one running product; each test makes its own merchants in a namespace of its own.
var shared *product

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	var err error
	if shared, err = startProduct(3, 2); err != nil {
		panic(err)
	}
	defer func() {
		if err := shared.stop(); err != nil {
			panic(err)
		}
	}()
	m.Run()
}
