// Package apiserver is the data plane's HTTP side: the payment session API that merchants' tills and
// payers' browsers call, and the internal and operational listeners beside it. Handlers decode, call
// the domain, encode, and return errors to one table (errors.go); routes.go shows every route. Run
// wires it all together and drains it again.
package apiserver
