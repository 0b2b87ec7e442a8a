"""The frame of the Admin REST: table of routes, requests, answers, OpenAPI document.
It knows no resource. The rooms of resources make routes of it; ``bootstrap`` mounts them.
"""
