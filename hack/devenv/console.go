package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/merchant-operator/merchant-operator/test/oidctest"
)

// people can sign in at the console. The first is in the group that config/samples binds; the second may see nothing.
func people() [2]oidctest.User {
	return [2]oidctest.User{
		{Username: "ann", Password: rand.Text(), Email: "ann@acme.example", Name: "Ann Acme", Groups: []string{"acme-developers"}},
		{Username: "bob", Password: rand.Text(), Email: "bob@other.example", Name: "Bob Other"},
	}
}

func (e *environment) consoleURL() string { return "http://" + e.addresses.console }

// startConsole starts an OpenID provider with people, and the console.
func (e *environment) startConsole(ctx context.Context) error {
	e.people = people()
	text, err := json.Marshal(e.people)
	if err != nil {
		return fmt.Errorf("encode the people: %w", err)
	}
	users := filepath.Join(e.directory, "people.json")
	if err := os.WriteFile(users, text, 0o600); err != nil {
		return fmt.Errorf("write the people of the provider: %w", err)
	}
	secret := rand.Text()
	stop, err := e.programs.start("oidc", filepath.Join(e.root, "bin", "oidc"), "--address", e.addresses.provider, "--users", users,
		"--client-secret", secret, "--redirect-urls", e.consoleURL()+"/callback")
	if err != nil {
		return err
	}
	e.onStop("OpenID provider", stop)
	if err := os.Setenv("OIDC_CLIENT_SECRET", secret); err != nil { // of the console, which inherits it
		return fmt.Errorf("pass on the client secret: %w", err)
	}
	stop, err = e.programs.keep("console", filepath.Join(e.root, "bin", "merchant-operator"), "console",
		"--kubeconfig", e.kubeconfig("console"), "--redis-url", e.redisURL(), "--ops-address", e.addresses.consoleOps,
		"--console-address", e.addresses.console, "--external-url", e.consoleURL(), "--api-url", "http://"+e.addresses.public[0],
		"--internal-url", "http://"+e.addresses.internal[0], "--oidc-issuer-url", "http://"+e.addresses.provider, "--oidc-client-id", "console",
		"--oidc-scopes", "profile", "--oidc-username-prefix", "oidc:", "--oidc-groups-claim", "groups", "--oidc-groups-prefix", "oidc:",
		"--drain-delay", "0s") // there is no load balancer
	if err != nil {
		return err
	}
	e.onStop("console", stop)
	url := "http://" + e.addresses.consoleOps + "/readyz"
	return eventually(ctx, url, func(ctx context.Context) error { return answers(ctx, http.DefaultClient, url) })
}
