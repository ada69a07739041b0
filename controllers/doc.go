// Package controllers is the operator: it reconciles Merchants and ApiKeys into the published objects
// of the credentials namespace, from which the data plane lives. It owns how the operator runs: its
// options, its caches, its ops port, its leader election. What it does about a Merchant is in package
// merchants, about an ApiKey in package apikeys, and what they do alike in package subject.
package controllers
