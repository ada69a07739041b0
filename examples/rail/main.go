// A payment rail: the connector between a payment network and merchant-operator, here a bank with one page. It is an example to read: docs/rail.md
// says why each step is as it is. It needs Go and no modules, moves no money, and asks nobody who they are.
//
//	api.go      the requests to the internal port, and what to do without an answer
//	bank.go     hold, pay, report, refund
//	journal.go  what survives a crash
//	page.go     what the payer sees
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	address := flag.String("address", "127.0.0.1:8086", "host:port to listen on; payers come to /pay/SESSION")
	internalURL := flag.String("internal-api", "http://merchant-operator-apiserver-internal.merchant-operator-system:8081", "URL of the internal port")
	tokenFile := flag.String("token-file", "/var/run/secrets/merchant-operator/token", "file with the token of this program's service account")
	journalPath := flag.String("journal", "payments.jsonl", "file that remembers payments")
	returnURL := flag.String("return-url", "", "address of the payer's page, with {sessionId}; empty: the bank's page links to none")
	flag.Parse()
	journal, err := openJournal(*journalPath)
	if err != nil {
		log.Fatal(err)
	}
	b := &bank{
		// A report may wait for replicas of Redis, so give it time.
		api:     &api{strings.TrimSuffix(*internalURL, "/"), *tokenFile, &http.Client{Timeout: 10 * time.Second}},
		journal: journal,
	}
	for _, p := range journal.list() {
		go b.finish(context.Background(), p) // what an earlier run has left
	}
	const patience = 30 * time.Second
	server := &http.Server{Addr: *address, Handler: b.routes(*returnURL), ReadTimeout: patience, WriteTimeout: patience}
	log.Printf("paying at http://%s/pay/SESSION", *address)
	log.Fatal(server.ListenAndServe()) // a bank may be killed at any time: its journal knows what is left
}
