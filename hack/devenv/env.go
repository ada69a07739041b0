package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeEnv writes .dev/env with a rename: if the file exists, it is complete and everything is ready.
func (e *environment) writeEnv() error {
	path := filepath.Join(e.directory, "env")
	var text strings.Builder
	for _, line := range [][2]string{
		{"KUBECONFIG", e.kubeconfig("admin")},
		{"NAMESPACE", sampleNamespace},
		{"CREDENTIALS_NAMESPACE", credentialsNamespace},
		{"API_URL", "http://" + e.addresses.public[0]},
		{"API_URL_2", "http://" + e.addresses.public[1]},
		{"INTERNAL_URL", "http://" + e.addresses.internal[0]},
		{"API_KEY", e.sample.apiKey},
		{"TEST_API_KEY", e.sample.testKey},
		{"MERCHANT", e.sample.merchant},
		{"REDIS_URL", e.redisURL()},
		{"RAIL_TOKEN", e.railToken},
		{"PAYER_URL", e.payerURL},
		{"CONSOLE_URL", e.consoleURL()},
		{"CONSOLE_USER", e.people[0].Username},
		{"CONSOLE_PASSWORD", e.people[0].Password},
		{"CONSOLE_USER_2", e.people[1].Username},
		{"CONSOLE_PASSWORD_2", e.people[1].Password},
		{"WEBHOOK_SINK_URL", e.receiverURL() + "/hooks"},
		{"MAIL_SINK_URL", e.mailSinkURL()},
		{"BANK_URL", e.bankURL()},
		{"OPERATOR_OPS_URL", "http://" + e.addresses.operatorOps},
		{"API_OPS_URL", "http://" + e.addresses.ops[0]},
		{"API_OPS_URL_2", "http://" + e.addresses.ops[1]},
		{"DISPATCHER_OPS_URL", "http://" + e.addresses.dispatcherOps},
		{"CONSOLE_OPS_URL", "http://" + e.addresses.consoleOps},
	} {
		fmt.Fprintf(&text, "%s=%s\n", line[0], quote(line[1]))
	}
	if err := os.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write .dev/env: %w", err)
	}
	e.onStop(".dev/env", func() error {
		if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write .dev/env: %w", err)
	}
	return nil
}

// quote quotes for a shell, but only if necessary: scripts may read the file without a shell.
func quote(value string) string {
	if strings.Trim(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") == "" {
		return value
	}
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}

// banner says what to try first.
func (e *environment) banner() {
	bold, dim, plain := "\x1b[1m", "\x1b[2m", "\x1b[0m"
	if info, err := os.Stdout.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 || os.Getenv("NO_COLOR") != "" {
		bold, dim, plain = "", "", ""
	}
	fmt.Printf(`
%[1]smerchant-operator is running.%[3]s

  API          http://%[4]s and http://%[5]s %[2]s(two replicas)%[3]s
  Payer page   %[11]s %[2]s(of a session over 12.50; its button opens the demo bank, where you pay)%[3]s
  Console      %[12]s %[2]s(user %[13]s, password %[14]s; user %[15]s, password %[16]s, may see nothing)%[3]s
  Kubernetes   export KUBECONFIG=%[6]s
               bin/kubectl get merchants,apikeys
  Redis        %[7]s %[2]s(%[8]s)%[3]s
  Webhooks     curl -s %[10]s/events %[2]s(events that the sample merchant has received)%[3]s
  Receipts     %[17]s %[2]s(mails to customers; a charge with a customerEmail sends one)%[3]s
  Variables    set -a; . .dev/env; set +a
  Logs         .dev/logs/

%[1]sCreate a session over 12.50 for the sample merchant:%[3]s

curl -s http://%[4]s/api/v1/sessions -H 'Authorization: Bearer %[9]s' -H 'Content-Type: application/json' -d '{"amountCents": 1250, "orderRef": "1001"}'

%[1]sSettle it as the sample rail; replace SESSION_ID by the sessionId of the response:%[3]s

set -a; . .dev/env; set +a; curl -s $INTERNAL_URL/internal/v1/sessions/SESSION_ID/settlement -H "Authorization: Bearer $RAIL_TOKEN" -d '{"paymentRef": "card-1", "outcome": "COMPLETED", "amountCents": 1250}'

Ctrl-C stops everything.
`, bold, dim, plain,
		e.addresses.public[0], e.addresses.public[1], e.kubeconfig("admin"), e.redisURL(), e.redis, e.sample.apiKey, e.receiverURL(),
		e.payerURL, e.consoleURL(), e.people[0].Username, e.people[0].Password, e.people[1].Username, e.people[1].Password, e.mailSinkURL())
}
