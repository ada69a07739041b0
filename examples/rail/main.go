// A payment rail: the connector between a payment network and merchant-operator, here a bank with one page. It is an example to read: docs/rail.md
// says why each step is as it is. It needs Go and no modules, moves no money, and asks nobody who they are.
//
//	api.go      the requests to the internal port, and what to do without an answer
//	rail.go     hold, pay, report
//	refunds.go  what is to be paid back
//	books.go    the bank itself, whose books survive a crash
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
	booksPath := flag.String("books", "books.jsonl", "file in which the bank writes which money has moved")
	period := flag.Duration("refunds-every", time.Minute, "how often to ask what is to be paid back")
	returnURL := flag.String("return-url", "", "address of the payer's page, with {sessionId}; empty: the bank's page links to none")
	flag.Parse()
	books, err := openBooks(*booksPath)
	if err != nil {
		log.Fatal(err)
	}
	// A report may wait for replicas of Redis, so give it time.
	r := newRail(&api{strings.TrimSuffix(*internalURL, "/"), *tokenFile, &http.Client{Timeout: 10 * time.Second}}, books)
	r.reportAll(context.Background())
	go r.payBack(context.Background(), *period)
	const patience = 30 * time.Second
	server := &http.Server{Addr: *address, Handler: r.routes(*returnURL), ReadTimeout: patience, WriteTimeout: patience}
	log.Printf("paying at http://%s/pay/SESSION", *address)
	log.Fatal(server.ListenAndServe()) // a bank may be killed at any time: its books say what has moved
}
