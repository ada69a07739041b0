package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
)

func (e *environment) bankURL() string { return "http://" + e.addresses.bank }

// startBank starts the rail of examples/rail, whose page the button of payers' pages opens. It signs in with a token of the sample rail's
// account, from a file as in a pod.
func (e *environment) startBank(ctx context.Context) error {
	token := filepath.Join(e.directory, "rail-token")
	if err := os.WriteFile(token, []byte(e.railToken), 0o600); err != nil {
		return fmt.Errorf("write the token of the rail: %w", err)
	}
	stop, err := e.programs.keep("bank", filepath.Join(e.root, "bin", "rail"), "--address", e.addresses.bank,
		"--internal-api", "http://"+e.addresses.internal[0], "--token-file", token, "--books", filepath.Join(e.directory, "books.jsonl"),
		"--refunds-every", "2s", "--return-url", "http://"+e.addresses.public[0]+"/pay/{sessionId}")
	if err != nil {
		return err
	}
	e.onStop("bank", stop)
	return eventually(ctx, e.bankURL(), func(ctx context.Context) error { return answers(ctx, http.DefaultClient, e.bankURL()+"/payments") })
}
