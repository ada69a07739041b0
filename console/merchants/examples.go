package merchants

import (
	"cmp"
	"strings"
)

// example is a first charge in one language, to copy.
type example struct{ Name, Code string }

// defaultAPIURL stands in the examples if --api-url is not set.
const defaultAPIURL = "https://api.example"

// examples read the key from the environment, so that nobody pastes one into a file.
func examples(apiURL string) []example {
	apiURL = cmp.Or(strings.TrimSuffix(apiURL, "/"), defaultAPIURL)
	all := []example{
		{"curl", `curl -sS API/api/v1/sessions \
  -H "Authorization: Bearer $PAYMENT_API_KEY" \
  -H "Idempotency-Key: order-1001" \
  -H "Content-Type: application/json" \
  -d '{"amountCents": 1250, "orderRef": "1001"}'
`},
		{"Go", `package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
)

func main() {
	body := strings.NewReader(` + "`" + `{"amountCents": 1250, "orderRef": "1001"}` + "`" + `)
	request, err := http.NewRequest("POST", "API/api/v1/sessions", body)
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("PAYMENT_API_KEY"))
	request.Header.Set("Idempotency-Key", "order-1001")
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.Status, string(answer))
}
`},
		{"Node", `const response = await fetch("API/api/v1/sessions", {
  method: "POST",
  headers: {
    "Authorization": ` + "`Bearer ${process.env.PAYMENT_API_KEY}`" + `,
    "Idempotency-Key": "order-1001",
    "Content-Type": "application/json",
  },
  body: JSON.stringify({ amountCents: 1250, orderRef: "1001" }),
});
console.log(response.status, await response.json());
`},
		{"Python", `import json, os, urllib.request

request = urllib.request.Request(
    "API/api/v1/sessions",
    data=json.dumps({"amountCents": 1250, "orderRef": "1001"}).encode(),
    headers={
        "Authorization": "Bearer " + os.environ["PAYMENT_API_KEY"],
        "Idempotency-Key": "order-1001",
        "Content-Type": "application/json",
    },
)
with urllib.request.urlopen(request) as response:
    print(response.status, json.load(response))
`},
	}
	for i := range all {
		all[i].Code = strings.ReplaceAll(all[i].Code, "API/api", apiURL+"/api")
	}
	return all
}
