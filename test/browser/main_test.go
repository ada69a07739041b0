// Package browser tests in a real browser what a payer sees of the whole product.
package browser

import (
	"flag"
	"log"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/browsertest"
)

var sharedBrowser *browsertest.Browser

func TestMain(m *testing.M) {
	flag.Parse() // a misspelt flag ends the tests here, before they have started anything
	if err := runTests(m); err != nil {
		log.Fatal(err)
	}
}

// runTests leaves the tests' own result to the testing package, which reports it when TestMain returns.
func runTests(m *testing.M) error {
	browser, closeBrowser, err := browsertest.New()
	if err != nil {
		return err
	}
	defer closeBrowser()
	sharedBrowser = browser
	m.Run()
	return nil
}
