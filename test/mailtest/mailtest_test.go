package mailtest_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"strings"
	"testing"

	"github.com/merchant-operator/merchant-operator/test/mailtest"
)

// A mail that was sent is in both lists, as text and not as HTML.
func TestServer_Handler(t *testing.T) {
	server, err := mailtest.Start(mailtest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	mail := "To: <jo@example.com>\r\nSubject: =?utf-8?q?Caf=C3=A9?=\r\nContent-Transfer-Encoding: quoted-printable\r\n\r\n<b>12,50 =E2=82=AC</b>\r\n"
	if err := smtp.SendMail(server.Address(), nil, "shop@example.com", []string{"jo@example.com"}, []byte(mail)); err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		recorder := httptest.NewRecorder()
		server.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return recorder.Body.String()
	}
	var messages []mailtest.Message
	if err := json.Unmarshal([]byte(get("/messages")), &messages); err != nil {
		t.Fatal(err)
	}
	if len(messages) != 1 || messages[0].To != "jo@example.com" || messages[0].Subject != "Café" || messages[0].Text != "<b>12,50 €</b>\n" {
		t.Errorf("the list is %+v", messages)
	}
	if page := get("/"); !strings.Contains(page, "Café") || !strings.Contains(page, "&lt;b&gt;12,50 €") {
		t.Errorf("the page is\n%s", page)
	}
}
