package page

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// parse reads a page as a browser does.
func parse(t *testing.T, page []byte) *html.Node {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func all(root *html.Node, element string) []*html.Node {
	var found []*html.Node
	for node := range root.Descendants() {
		if node.Type == html.ElementNode && node.Data == element {
			found = append(found, node)
		}
	}
	return found
}

func one(t *testing.T, root *html.Node, element string) *html.Node {
	t.Helper()
	found := all(root, element)
	if len(found) != 1 {
		t.Fatalf("%d elements <%s>, want one", len(found), element)
	}
	return found[0]
}

func attribute(node *html.Node, name string) string {
	for _, a := range node.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func has(node *html.Node, name string) bool {
	return slices.ContainsFunc(node.Attr, func(a html.Attribute) bool { return a.Key == name })
}

func links(root *html.Node) []string {
	var found []string
	for _, link := range all(root, "a") {
		found = append(found, attribute(link, "href"))
	}
	return found
}

// text is what can be read of an element, with single spaces.
func text(root *html.Node) string {
	var words []string
	for node := range root.Descendants() {
		if node.Type == html.TextNode {
			words = append(words, strings.Fields(node.Data)...)
		}
	}
	return strings.Join(words, " ")
}
