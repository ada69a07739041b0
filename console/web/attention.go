package web

import "html/template"

// Attention is what needs attention of a Merchant, the most urgent first.
type Attention []Notice

// Notice is something that a person should fix.
type Notice struct {
	Text template.HTML
	// Action is what fixes it, and Link where that is; empty: the viewer may not, or nothing here does.
	Action, Link string
	// Post: the action is a form without fields.
	Post bool
}
